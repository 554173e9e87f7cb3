#include <ggml-alloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/memory.h"
#include "eval/cpu/attention_case.h"

namespace varve::eval {
namespace {

/// What libllama's build_attn_mha does for one row: with flash attention one operator over K and V as they are
/// appended; without, two products with a softmax between them over a transposed V.
class PeerAttention final : public AttentionContender {
 public:
  PeerAttention(Runner& runner, const AttentionData& data, ggml_type type, bool flash, size_t bytes)
      : runner_(runner), data_(data), type_(type), flash_(flash) {
    side_bytes_ = ggml_row_size(type, static_cast<int64_t>(data.shape.row())) * static_cast<size_t>(data.shape.tokens);
    layers_ = std::max(1, static_cast<int>((bytes + layer_bytes() - 1) / layer_bytes()));
  }

  Status fill() {
    const AttentionShape& s = data_.shape;
    for (int l = 0; l < layers_; ++l) {
      caches_.emplace_back(align_up(side_bytes_, kCacheLine) * 2);
      if (caches_.back().data() == nullptr) return resource_exhausted("no memory for the caches of the bench");
      if (l > 0) {
        std::memcpy(caches_.back().data(), caches_[0].data(), caches_[0].size());
        continue;
      }
      const auto pack = [&](const std::vector<float>& rows, uint8_t* to) {
        if (type_ == GGML_TYPE_F16) {
          ggml_fp32_to_fp16_row(rows.data(), reinterpret_cast<ggml_fp16_t*>(to), static_cast<int64_t>(rows.size()));
        } else {
          ggml_quantize_chunk(type_, rows.data(), to, 0, s.tokens, static_cast<int64_t>(s.row()), nullptr);
        }
      };
      pack(data_.k, k(0));
      if (flash_) {
        pack(data_.v, v(0));
      } else {
        std::vector<float> transposed(data_.v.size());
        const auto tokens = static_cast<size_t>(s.tokens);
        for (size_t t = 0; t < tokens; ++t) {
          for (size_t i = 0; i < s.row(); ++i) transposed[i * tokens + t] = data_.v[t * s.row() + i];
        }
        pack(transposed, v(0));
      }
    }
    return build();
  }

  size_t layer_bytes() const override { return 2 * side_bytes_; }
  Result<double> run(int passes) override {
    double seconds = 0;
    for (int i = 0; i < passes; ++i) {
      const auto took = runner_.compute(graph_);
      if (!took.ok()) return took.status();
      seconds += *took;
    }
    return seconds / passes / layers_;
  }
  std::span<const float> output() const override {
    return {static_cast<const float*>(first_->data), data_.shape.q_size()};
  }
  void stored(std::vector<float>* k_out, std::vector<float>* v_out) const override {
    const auto unpack = [&](const uint8_t* from, std::vector<float>* to) {
      to->resize(data_.k.size());
      ggml_get_type_traits(type_)->to_float(from, to->data(), static_cast<int64_t>(to->size()));
    };
    unpack(caches_[0].data(), k_out);
    unpack(caches_[0].data() + caches_[0].size() / 2, v_out);
    if (flash_) return;
    const std::vector<float> transposed = *v_out;
    const auto tokens = static_cast<size_t>(data_.shape.tokens);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < data_.shape.row(); ++i) {
        (*v_out)[t * data_.shape.row() + i] = transposed[i * tokens + t];
      }
    }
  }
  std::vector<std::span<const uint8_t>> regions() const override {
    std::vector<std::span<const uint8_t>> out;
    for (const AlignedBuffer& c : caches_) out.push_back({c.data(), c.size()});
    return out;
  }

 private:
  uint8_t* k(int layer) { return caches_[static_cast<size_t>(layer)].data(); }
  uint8_t* v(int layer) {
    AlignedBuffer& c = caches_[static_cast<size_t>(layer)];
    return c.data() + c.size() / 2;
  }

  Status build() {
    const AttentionShape& s = data_.shape;
    const auto most = static_cast<size_t>(12 * layers_ + 8);
    context_ = new_graph_context(most);
    ggml_context* c = context_.get();
    graph_ = ggml_new_graph_custom(c, most, false);
    const auto leaf = [&](ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, void* bytes) {
      ggml_tensor* t = ggml_new_tensor_3d(c, type, ne0, ne1, ne2);
      t->data = bytes;
      return t;
    };
    mask_.assign(static_cast<size_t>(s.tokens), 0);
    std::fill(mask_.begin() + s.length(), mask_.end(), -std::numeric_limits<float>::infinity());
    mask_f16_.resize(mask_.size());
    ggml_fp32_to_fp16_row(mask_.data(), mask_f16_.data(), s.tokens);
    ggml_tensor* q = leaf(GGML_TYPE_F32, s.head_dim, 1, s.q_heads, const_cast<float*>(data_.q.data()));
    ggml_tensor* mask = flash_ ? leaf(GGML_TYPE_F16, s.tokens, 1, 1, mask_f16_.data())
                               : leaf(GGML_TYPE_F32, s.tokens, 1, 1, mask_.data());
    const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    for (int l = 0; l < layers_; ++l) {
      const auto rows = [&](uint8_t* bytes) {
        return ggml_permute(c, leaf(type_, s.head_dim, s.kv_heads, s.tokens, bytes), 0, 2, 1, 3);
      };
      ggml_tensor* out;
      if (flash_) {
        out = ggml_flash_attn_ext(c, q, rows(k(l)), rows(v(l)), mask, scale, 0, 0);
        ggml_prec_set_acc(out, GGML_PREC_F32);
      } else {
        ggml_tensor* scores = ggml_mul_mat(c, rows(k(l)), q);
        ggml_prec_set_acc(scores, GGML_PREC_F32);
        scores = ggml_soft_max_ext(c, scores, mask, scale, 0);
        out = ggml_mul_mat(c, leaf(type_, s.tokens, s.head_dim, s.kv_heads, v(l)), scores);
      }
      if (l == 0) {
        ggml_set_output(out);
        first_ = out;
      }
      ggml_build_forward_expand(graph_, out);
    }
    allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (allocator_ == nullptr || !ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
      return resource_exhausted("no memory for the peer's attention graph");
    }
    return {};
  }

  Runner& runner_;
  const AttentionData& data_;
  ggml_type type_;
  bool flash_;
  size_t side_bytes_ = 0;
  int layers_ = 0;
  std::vector<AlignedBuffer> caches_;  ///< K, then V
  std::vector<float> mask_;
  std::vector<ggml_fp16_t> mask_f16_;
  GgmlContext context_;
  std::unique_ptr<ggml_gallocr, GgmlDeleter<ggml_gallocr, ggml_gallocr_free>> allocator_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* first_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<AttentionContender>> peer_attention(Runner& runner, const AttentionData& data,
                                                           const std::string& type, bool flash, size_t bytes) {
  for (const ggml_type t : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    if (type != ggml_type_name(t)) continue;
    if (!flash && t != GGML_TYPE_F16) return unsupported("libllama keeps quantised V with flash attention only");
    auto out = std::make_unique<PeerAttention>(runner, data, t, flash, bytes);
    if (Status s = out->fill(); !s.ok()) return s;
    return std::unique_ptr<AttentionContender>(std::move(out));
  }
  return invalid_argument("peer KV type \"" + type + "\" (known: f16, q8_0, q4_0)");
}

}  // namespace varve::eval
