#include "eval/cpu/runner.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"

namespace varve::eval {
namespace {

uint64_t sum(std::span<const uint8_t> bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes.size(); i += 64) {
    uint64_t words[8];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    for (int w = 0; w < 8; ++w) sums[w] += words[w];
  }
  for (int w = 1; w < 8; ++w) sums[0] += sums[w];
  return sums[0];
}

}  // namespace

GgmlContext new_graph_context(size_t nodes) {
  return GgmlContext(
      ggml_init({ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
}

Result<std::unique_ptr<Runner>> Runner::create(int threads) {
  std::unique_ptr<Runner> out(new Runner(threads));
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  out->pool_.reset(ggml_threadpool_new(&params));
  out->backend_.reset(ggml_backend_cpu_init());
  if (out->pool_ == nullptr || out->backend_ == nullptr) {
    return resource_exhausted("cannot start a pool of " + std::to_string(threads) + " threads");
  }
  ggml_backend_cpu_set_n_threads(out->backend_.get(), threads);
  ggml_backend_cpu_set_threadpool(out->backend_.get(), out->pool_.get());
  return out;
}

Result<double> Runner::compute(ggml_cgraph* graph) {
  const double start = now_s();
  const ggml_status status = ggml_backend_graph_compute(backend_.get(), graph);
  if (status != GGML_STATUS_SUCCESS)
    return internal_error(std::string("bench graph: ") + ggml_status_to_string(status));
  return now_s() - start;
}

Result<double> Runner::parallel(const std::function<void(int, int)>& fn) {
  const GgmlContext context = new_graph_context(4);
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 4, false);
  ggml_tensor* node = ggml_custom_4d(
      context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
      [](ggml_tensor*, int thread, int threads, void* user) {
        (*static_cast<const std::function<void(int, int)>*>(user))(thread, threads);
      },
      GGML_N_TASKS_MAX, const_cast<std::function<void(int, int)>*>(&fn));
  float data = 0;
  node->data = &data;
  ggml_build_forward_expand(graph, node);
  return compute(graph);
}

Result<double> Runner::read_bandwidth(std::span<const std::span<const uint8_t>> regions, int rounds) {
  double bytes = 0, best = 0;
  for (const auto& r : regions) bytes += static_cast<double>(r.size());
  std::atomic<uint64_t> sink{0};  // without a use of the sums nothing would be read
  for (int round = 0; round < rounds; ++round) {
    const auto seconds = parallel([&](int thread, int threads) {
      uint64_t s = 0;
      for (const auto& r : regions) {
        const size_t part = r.size() / static_cast<size_t>(threads) / 64 * 64;
        s += sum(r.subspan(part * static_cast<size_t>(thread), part));
      }
      sink += s;
    });
    if (!seconds.ok()) return seconds.status();
    best = std::max(best, bytes / *seconds);
  }
  return best;
}

}  // namespace varve::eval
