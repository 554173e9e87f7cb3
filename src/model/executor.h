#pragma once
// Runs a model's graph for one step on the CPU. Attention is somebody else's (attention::LayerAttention).

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/layer_attention.h"
#include "model/model.h"
#include "model/weight_product.h"
#include "varve/status.h"
#include "varve/step_times.h"

namespace varve::model {

struct StepInput {
  std::span<const int32_t> tokens;       ///< [rows]
  std::span<const int32_t> positions;    ///< [rows]
  std::span<const int32_t> output_rows;  ///< rows whose logits are wanted, ascending; may be empty
  /// Leading rows, and leading output rows, whose weight products may use the arithmetic of WeightProduct: 0 or at least
  /// WeightProduct::kLeastRows. Rows of one sequence that say so in every step have results without batch neighbours.
  int wide_rows = 0, wide_outputs = 0;
};

/// Not thread-safe: one run() or parallel() at a time.
class Executor {
 public:
  struct Options {
    int threads = 1;
    int max_rows = 512;  ///< most rows of one step
    WeightGemm weight_gemm = WeightGemm::kGgml;
    const kernels::Kernels* kernels = nullptr;  ///< of our own weight products; null: the best of this machine
  };
  static Result<std::unique_ptr<Executor>> create(std::shared_ptr<Model> model, const Options& options);
  ~Executor();

  /// logits: [output_rows][vocabulary] fp32. Graphs are cached by their StepSize so that decode rebuilds nothing; they
  /// share one activation buffer, which grows when a step needs more. Errors: kInvalidArgument names what is wrong with
  /// the input, kResourceExhausted when there is no memory for the activations; the attention was not called then.
  Status run(const StepInput& input, attention::LayerAttention& attention, std::span<float> logits);

  /// Runs fn(thread, threads) on every thread of the pool and waits. fn must not throw.
  void parallel(const std::function<void(int, int)>& fn);

  /// Until told otherwise (null), run() and parallel() add to *times what they know of a step: prepare_s to output_s and
  /// the threads. Steps then run a graph of their own, with stamps between its nodes. *times outlives that.
  void time_steps(StepTimes* times);

  int threads() const;
  size_t compute_bytes() const;  ///< activation buffers and panels of weight products
  /// Weight matrices that WeightProduct multiplies with wide rows.
  int own_products() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Executor();
};

}  // namespace varve::model
