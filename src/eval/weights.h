#pragma once
// What EngineOptions::weight_gemm "auto" gives: speed and distance beside "ggml", two engines in one process.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/speed.h"
#include "model/model.h"

namespace varve::eval {

struct WeightOptions {
  int threads = 0;
  std::string kernel;
  std::vector<int> prompts = {64, 128, 512, 2048};  ///< tokens, fed from empty; each within the model's context
  int compared_tokens = 128;                        ///< of the KL rows
  int rounds = 5;
  std::function<void(const std::string& what, int done, int total)> progress;
};

/// Rows: prefill speed per prompt length (tok/s, medians, engines taking turns, dense profile), bytes of activations
/// and panels, and the mean KL of every position's distribution from "ggml"'s. kInvalidArgument when the text is
/// shorter than the longest prompt.
Result<std::vector<BenchRow>> measure_weights(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                              const WeightOptions& options);

}  // namespace varve::eval
