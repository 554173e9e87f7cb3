#pragma once
// What one answer cost: the same numbers as a table for people and as JSON for programs (docs/json.md).

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "engine/generate.h"
#include "varve/profile.h"
#include "varve/stats.h"

namespace varve::cli {

struct Run {
  std::string answer;
  int prompt_tokens = 0;
  int cached_tokens = 0;  ///< of the prompt, already in the cache when it arrived
  double ttft_s = 0;
  double contrast = 0;   ///< weight; 0: off
  int prior_tokens = 0;  ///< of the prompt without its documents, read for contrast
  engine::Generation generation;
  Profile profile;
  EngineStats stats;
};

nlohmann::ordered_json run_json(const Run& run);
nlohmann::ordered_json kv_json(const KvStats& kv);

/// Drafted and accepted tokens, and why steps went without, on one line.
std::string speculation_line(const engine::SpeculationStats& stats);

/// Tokens and bytes by tier, the dense cache's bytes, the ratio, TTFT, tok/s and fallbacks.
void print_run(std::ostream& out, const Run& run);

}  // namespace varve::cli
