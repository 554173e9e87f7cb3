#include "model/weight_product.h"

#include <ggml-backend.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace varve::model {
namespace {

/// Where the decoded panel beats ggml's kernels from kLeastRows on (docs/adr/0013-prefill-weight-products.md).
constexpr ggml_type kFaster[] = {GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0};

constexpr int kGroup = WeightProduct::kGroupRows;

}  // namespace

Result<WeightGemm> parse_weight_gemm(std::string_view name) {
  if (name == "auto") return WeightGemm::kAuto;
  if (name == "ggml") return WeightGemm::kGgml;
  if (name == "fp32") return WeightGemm::kFp32;
  return invalid_argument("weight_gemm is \"" + std::string(name) + "\" (known: auto, ggml, fp32)");
}

WeightProduct::WeightProduct(WeightGemm choice, const kernels::Kernels& kernels, int threads)
    : choice_(choice), kernels_(kernels) {
  if (choice_ == WeightGemm::kGgml) return;
  scratch_bytes_ = kBytesPerThread * static_cast<size_t>(threads);
  scratch_ = AlignedBuffer(scratch_bytes_);
}

Status WeightProduct::check() const {
  if (scratch_bytes_ == 0 || scratch_.data() != nullptr) return {};
  return resource_exhausted("no memory for panels of weight products, " + std::to_string(scratch_bytes_) + " bytes");
}

bool WeightProduct::takes(const ggml_tensor* w) const {
  if (choice_ == WeightGemm::kGgml) return false;
  if (w->buffer != nullptr && !ggml_backend_buffer_is_host(w->buffer)) return false;
  if (choice_ == WeightGemm::kFp32) {
    const ggml_type_traits& type = *ggml_get_type_traits(w->type);
    return w->type != GGML_TYPE_F32 && type.to_float != nullptr && kPanelDepth % type.blck_size == 0;
  }
  if (std::string_view(kernels_.name) == "generic") return false;
  return std::find(std::begin(kFaster), std::end(kFaster), w->type) != std::end(kFaster);
}

WeightProduct::Share WeightProduct::share(int out, int thread, int threads) {
  const int64_t groups = (out + kGroup - 1) / kGroup;
  const auto cut = [&](int t) { return static_cast<int>(std::min<int64_t>(out, groups * t / threads * kGroup)); };
  return {cut(thread), cut(thread + 1)};
}

void WeightProduct::run(const ggml_tensor* w, const float* x, int rows, float* y, int thread, int threads) {
  const ggml_type_traits& type = *ggml_get_type_traits(w->type);
  const int in = static_cast<int>(w->ne[0]), out = static_cast<int>(w->ne[1]);
  const auto [begin, end] = share(out, thread, threads);
  float* panel = reinterpret_cast<float*>(scratch_.data() + kBytesPerThread * static_cast<size_t>(thread));
  float* decoded = panel + kPanelRows * kPanelDepth;
  const auto* weights = static_cast<const uint8_t*>(w->data);
  for (int o = begin; o < end; o += kPanelRows) {
    const int columns = std::min(kPanelRows, end - o);
    for (int k = 0; k < in; k += kPanelDepth) {
      const int depth = std::min(kPanelDepth, in - k);
      const size_t offset = static_cast<size_t>(k / type.blck_size) * type.type_size;
      for (int c = 0; c < columns; c += kGroup) {
        const int n = std::min(kGroup, columns - c);
        for (int i = 0; i < n; ++i) {
          type.to_float(weights + static_cast<size_t>(o + c + i) * w->nb[1] + offset, decoded + i * kPanelDepth, depth);
        }
        kernels_.transpose(n, depth, decoded, kPanelDepth, panel + c, kPanelRows);
      }
      kernels_.gemm(rows, columns, depth, x + k, in, panel, kPanelRows, y + o, out, /*accumulate=*/k > 0);
    }
  }
}

}  // namespace varve::model
