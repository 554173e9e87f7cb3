// One weight matrix times many rows on one thread: ggml's kernel (repacked where ggml repacks), ours, and OpenBLAS over
// the same decoded panels when this was built beside it. Contenders take turns; GFLOP/s of the best round, which a
// shared machine disturbs least; weights are decoded anew by each call. usage: micro_weights [in out [rounds [type
// ...]]]

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#ifdef VARVE_WITH_OPENBLAS
#include <cblas-openblas.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/weight_product.h"

namespace varve::model {
namespace {

constexpr ggml_type kTypes[] = {GGML_TYPE_F16,  GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};

std::vector<float> gaussian(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

/// ggml's product as a graph of one node over a weight in `buffer_type`.
class GgmlProduct {
 public:
  GgmlProduct(ggml_type type, int in, int out, int rows, ggml_backend_buffer_type_t buffer_type, const void* weights,
              const float* x) {
    backend_ = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend_, 1);
    weights_ = ggml_init({ggml_tensor_overhead(), nullptr, true});
    ggml_tensor* w = ggml_new_tensor_2d(weights_, type, in, out);
    weight_buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(weights_, buffer_type);
    ggml_backend_tensor_set(w, weights, 0, ggml_nbytes(w));
    context_ = ggml_init({ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true});
    ggml_tensor* input = ggml_new_tensor_2d(context_, GGML_TYPE_F32, in, rows);
    output_ = ggml_mul_mat(context_, w, input);
    graph_ = ggml_new_graph(context_);
    ggml_build_forward_expand(graph_, output_);
    buffer_ = ggml_backend_alloc_ctx_tensors(context_, backend_);
    ggml_backend_tensor_set(input, x, 0, ggml_nbytes(input));
  }
  GgmlProduct(const GgmlProduct&) = delete;
  GgmlProduct& operator=(const GgmlProduct&) = delete;
  ~GgmlProduct() {
    ggml_backend_buffer_free(buffer_);
    ggml_backend_buffer_free(weight_buffer_);
    ggml_free(context_);
    ggml_free(weights_);
    ggml_backend_free(backend_);
  }
  void run() { ggml_backend_graph_compute(backend_, graph_); }
  const float* result() const { return static_cast<const float*>(output_->data); }

 private:
  ggml_backend_t backend_;
  ggml_context *weights_, *context_;
  ggml_backend_buffer_t weight_buffer_, buffer_;
  ggml_tensor* output_;
  ggml_cgraph* graph_;
};

/// The repacking buffer type of the CPU backend, or null.
ggml_backend_buffer_type_t repacking_buffers() {
  ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  auto* extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
  if (extra == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* t = extra(cpu); t != nullptr && *t != nullptr; ++t) {
    if (std::strstr(ggml_backend_buft_name(*t), "REPACK") != nullptr) return *t;
  }
  return nullptr;
}

#ifdef VARVE_WITH_OPENBLAS
/// Decoded panels of whole rows through sgemm.
void openblas_product(ggml_type type, int in, int out, const uint8_t* weights, const float* x, int rows, float* y,
                      std::vector<float>& panel) {
  constexpr int kRows = 128;
  panel.resize(static_cast<size_t>(kRows) * static_cast<size_t>(in));
  for (int o = 0; o < out; o += kRows) {
    const int n = std::min(kRows, out - o);
    ggml_get_type_traits(type)->to_float(weights + static_cast<size_t>(o) * ggml_row_size(type, in), panel.data(),
                                         int64_t{n} * in);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, in, 1.0f, x, in, panel.data(), in, 0.0f, y + o, out);
  }
}
#endif

struct Contender {
  const char* name;
  std::function<void()> run;
  std::vector<double> seconds;
};

void measure(ggml_type type, int in, int out, int rows, int rounds, std::vector<uint8_t>& weights,
             const std::vector<float>& x) {
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(out)), panel;
  const ggml_tensor tensor = [&] {
    ggml_tensor t{};
    t.type = type;
    t.ne[0] = in;
    t.ne[1] = out;
    t.nb[1] = ggml_row_size(type, in);
    t.data = weights.data();
    return t;
  }();

  GgmlProduct plain(type, in, out, rows, ggml_backend_cpu_buffer_type(), weights.data(), x.data());
  WeightProduct ours(WeightGemm::kAuto, *kernels::available().front(), 1);
  std::vector<Contender> contenders;
  contenders.push_back({"ggml", [&] { plain.run(); }, {}});
  contenders.push_back({"ours", [&] { ours.run(&tensor, x.data(), rows, y.data(), 0, 1); }, {}});
#ifdef VARVE_WITH_OPENBLAS
  openblas_set_num_threads(1);
  contenders.push_back(
      {"openblas", [&] { openblas_product(type, in, out, weights.data(), x.data(), rows, y.data(), panel); }, {}});
#endif
  // What ggml's repacking type takes is what it answers for through its buffers.
  std::unique_ptr<GgmlProduct> repacked;
  const bool repacks =
      type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q2_K || type == GGML_TYPE_IQ4_NL;
  if (ggml_backend_buffer_type_t t = repacking_buffers(); t != nullptr && repacks && out % 8 == 0) {
    repacked = std::make_unique<GgmlProduct>(type, in, out, rows, t, weights.data(), x.data());
    contenders.push_back({"repacked", [&] { repacked->run(); }, {}});
  }

  const double flop = 2.0 * in * out * rows;
  for (int round = -1; round < rounds; ++round) {
    for (Contender& c : contenders) {
      const double start = now_s();
      c.run();
      if (round >= 0) c.seconds.push_back(now_s() - start);
    }
  }
  std::printf("%-7s %5d rows", ggml_type_name(type), rows);
  double error = 0, norm = 0;
  plain.run();
  ours.run(&tensor, x.data(), rows, y.data(), 0, 1);
  for (size_t i = 0; i < y.size(); ++i) {
    error += (y[i] - plain.result()[i]) * (y[i] - plain.result()[i]);
    norm += y[i] * y[i];
  }
  for (Contender& c : contenders) {
    std::printf("  %s %6.1f", c.name, flop / *std::min_element(c.seconds.begin(), c.seconds.end()) / 1e9);
  }
  std::printf("  (ggml differs from ours by %.1e)\n", std::sqrt(error / norm));
  std::fflush(stdout);
}

}  // namespace
}  // namespace varve::model

int main(int argc, char** argv) {
  using namespace varve::model;
  const int in = argc > 2 ? std::atoi(argv[1]) : 576, out = argc > 2 ? std::atoi(argv[2]) : 1536;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 25;
  if (in < 32 || in % 32 != 0 || out < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: micro_weights [in out [rounds [type ...]]]; in is a multiple of 32\n");
    return 2;
  }
  const auto w = gaussian(static_cast<size_t>(in) * static_cast<size_t>(out), 1);
  const auto x = gaussian(static_cast<size_t>(in) * 2048, 2);
  std::printf("%d x %d, one thread, GFLOP/s\n", in, out);
  for (const ggml_type type : kTypes) {
    const bool wanted = argc <= 4 || std::any_of(argv + 4, argv + argc, [&](const char* name) {
                          return std::string(name) == ggml_type_name(type);
                        });
    if (!wanted || in % ggml_blck_size(type) != 0) continue;
    std::vector<uint8_t> weights(ggml_row_size(type, in) * static_cast<size_t>(out));
    ggml_quantize_chunk(type, w.data(), weights.data(), 0, out, in, nullptr);
    for (const int rows : {32, 64, 128, 512}) measure(type, in, out, rows, rounds, weights, x);
  }
  return 0;
}
