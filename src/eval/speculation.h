#pragma once
// Answers with and without drafts, in one engine, taking turns: what speculative decoding is worth on a machine.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "eval/speed.h"

namespace varve::eval {

struct SpeculationBenchOptions {
  engine::Speculation speculation;
  int answer_tokens = 128;
  int rounds = 5;
  /// False stops (kCancelled).
  std::function<bool(const std::string& what, int done, int total)> progress;
};

struct SpeculationPrompt {
  std::string name;
  std::vector<int32_t> tokens;
};

/// One row a prompt: decode speed with drafts against without, greedy, medians over rounds. Details: acceptance,
/// drafted, tokens_per_step, and same_tokens, the first tokens on which both answers agree.
Result<std::vector<BenchRow>> measure_speculation(Engine& engine, std::span<const SpeculationPrompt> prompts,
                                                  const SpeculationBenchOptions& options);

}  // namespace varve::eval
