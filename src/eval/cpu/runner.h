#pragma once
// ggml's thread pool and graphs for benches: ours and the peer's nodes run under the same barriers.

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <functional>
#include <memory>
#include <span>

#include "varve/status.h"

namespace varve::eval {

template <typename T, auto Free>
struct GgmlDeleter {
  void operator()(T* p) const { Free(p); }
};
using GgmlContext = std::unique_ptr<ggml_context, GgmlDeleter<ggml_context, ggml_free>>;

/// A context for `nodes` tensor headers and one graph of them, no data.
GgmlContext new_graph_context(size_t nodes);

class Runner {
 public:
  static Result<std::unique_ptr<Runner>> create(int threads);
  int threads() const { return threads_; }
  /// Seconds.
  Result<double> compute(ggml_cgraph* graph);
  /// fn(thread, threads) on every thread; seconds.
  Result<double> parallel(const std::function<void(int, int)>& fn);
  /// The best of `rounds` sums over `regions`, bytes per second of all threads together.
  Result<double> read_bandwidth(std::span<const std::span<const uint8_t>> regions, int rounds);

 private:
  explicit Runner(int threads) : threads_(threads) {}
  int threads_;
  // The backend goes before its pool.
  std::unique_ptr<ggml_threadpool, GgmlDeleter<ggml_threadpool, ggml_threadpool_free>> pool_;
  std::unique_ptr<ggml_backend, GgmlDeleter<ggml_backend, ggml_backend_free>> backend_;
};

}  // namespace varve::eval
