#pragma once
// How far the dense engine is from libllama on the same weights, beside how far libllama's own variants are from each
// other.

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/speed.h"
#include "model/model.h"

namespace varve::eval {

struct ParityOptions {
  int prompt_tokens = 700;
  int steps = 64;
  int threads = 0;
  std::string kernel;
  std::vector<int> chunks = {7, 64, 512};  ///< chunked prefill compared with one shot
  std::function<void(const std::string& what, int done, int total)> progress;
};

/// Distance of two runs over the same continuation.
struct ParityDistance {
  double mean_kl = 0, max_kl = 0, max_delta = 0;
};

struct ParityReport {
  ParityDistance flash_floor;        ///< libllama, flash attention on against off
  ParityDistance micro_batch_floor;  ///< libllama, micro-batch 64 against 512
  ParityDistance ours;               ///< varve dense against libllama, flash attention off
  std::vector<std::pair<int, ParityDistance>> chunked;  ///< against our own one-shot prefill
  int greedy_differences = 0;             ///< steps whose most likely token differs from libllama's ...
  int greedy_differences_above_floor = 0;  ///< ... although its lead is larger than its variants differ
  double bound() const { return 2 * std::max(flash_floor.mean_kl, micro_batch_floor.mean_kl); }
};

/// Prefills prompt_tokens of `text`, then feeds every run the tokens that libllama picks greedily.
Result<ParityReport> measure_parity(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                    const ParityOptions& options);

/// One row per distance, as a share of the bound: ratio > 1 is inside.
std::vector<BenchRow> parity_rows(const std::string& name, const ParityReport& report);

}  // namespace varve::eval
