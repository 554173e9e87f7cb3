#pragma once
// Speed, as ratios against libllama in the same process and run: contenders take turns, medians are compared.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

/// One line of a bench table. ratio > 1: ours is better.
struct BenchRow {
  std::string suite, name, unit;
  bool higher_is_better = true;
  double ours = 0;
  std::map<std::string, double> peers;
  double ratio = 0;  ///< ours against the best peer
  std::optional<double> target;  ///< least ratio wanted
  std::map<std::string, double> details;  ///< figures beside the ratio
  bool met() const { return !target || ratio >= *target; }
};

struct SpeedOptions {
  int threads = 0;
  std::string kernel;
  int prefill_tokens = 512;
  int depth_tokens = 4096;         ///< of the comparison with libllama
  int profile_depth_tokens = 7900; ///< of `profile` against our own dense
  Profile profile;                 ///< compared with dense; skipped when it is dense
  int decode_tokens = 24;          ///< per measurement
  int rounds = 5;
  std::function<void(const std::string& what, int done, int total)> progress;
};

/// text: at least max(depth, profile_depth) + decode_tokens tokens, clipped to the model's context.
Result<std::vector<BenchRow>> measure_speed(const std::shared_ptr<model::Model>& model,
                                            std::span<const int32_t> text, const SpeedOptions& options);

}  // namespace varve::eval
