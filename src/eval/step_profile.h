#pragma once
// Where the time of a decode step and of a prefill chunk goes.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

struct StepProfileOptions {
  Profile profile;
  int threads = 0;
  std::string kernel;
  int depth_tokens = 7900;  ///< context of the decode steps; the chunk ends there
  int chunk_tokens = 512;   ///< of the prefill step, at most the depth
  int decode_tokens = 48;   ///< steps of a round
  int rounds = 5;           ///< with and without probes in turns
  std::function<bool(const std::string& what, int done, int total)> progress;  ///< false cancels
};

/// Sums over all rounds.
struct PhaseProfile {
  StepTimes times;
  double sample_s = 0;       ///< greedy sampling after each step, outside the step
  double plain_step_s = 0;   ///< median step without probes
  double probed_step_s = 0;  ///< and with them
  /// Wall time with sampling that no probe covers.
  double unaccounted_s() const { return times.wall_s - times.accounted_s(); }
  double probe_cost() const { return probed_step_s / plain_step_s - 1; }
};

struct StepProfileReport {
  int depth_tokens = 0, chunk_tokens = 0, threads = 0;
  std::string kernel;
  PhaseProfile decode, prefill;
};

/// text: more than depth_tokens tokens.
Result<StepProfileReport> profile_steps(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                        const StepProfileOptions& options);

}  // namespace varve::eval
