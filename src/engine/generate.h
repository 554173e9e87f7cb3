#pragma once
// The decode loop of one session: sample, show, feed, until an end token, a stop string, a limit or the caller says so.

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/contrast.h"
#include "engine/speculation/drafter.h"
#include "model/sampler.h"
#include "varve/engine.h"

namespace varve::engine {

/// Guesses verified in the steps of an answer (docs/speculation.md). The answer has the distribution that it has
/// without; with drafts that were chosen, not drawn, and equal logits it has the same tokens.
struct Speculation {
  static constexpr int kMostDraftTokens = 31;
  Drafter* drafter = nullptr;  ///< null: off
  int draft_tokens = 3;        ///< most of one step
  /// Cost of a further row of a step, as a part of a step of one row: fewer tokens are drafted where being right does
  /// not pay for it. 0: always draft_tokens.
  double row_cost = 0.4;
};

/// kInvalidArgument: draft_tokens outside 1 to kMostDraftTokens, row_cost outside [0, 1].
Status check_speculation(const Speculation& speculation);

struct GenerateOptions {
  int max_tokens = 512;
  std::vector<std::string> stops;
  /// Text as it becomes safe to show; false stops the answer.
  std::function<bool(std::string_view)> on_text;
  Speculation speculation;
  Contrast contrast;
};

enum class StopReason { kEnd, kStopString, kMaxTokens, kContextFull, kCaller };
const char* stop_reason_name(StopReason reason);  ///< "end", "stop", "length", "context", "interrupted"

/// What the drafts of an answer came to.
struct SpeculationStats {
  std::string drafter;    ///< its name; empty: off
  uint64_t steps = 0;     ///< of the model after the prompt
  uint64_t drafted = 0;   ///< tokens that steps verified
  uint64_t accepted = 0;  ///< of those, tokens of the answer
  /// Steps without drafts by reason: "paused" (drafts were wrong too often), "edge" (the end of a tile or page, which
  /// drafts must not seal), "limit" (one token to go), "end" (an end of the answer is all that was drafted), "memory"
  /// and "draft_memory" (no room in the one cache or the other), or the drafter's word.
  std::map<std::string, uint64_t> without;
  double draft_s = 0;         ///< spent drafting, part of decode_s
  size_t draft_kv_bytes = 0;  ///< physical, of the drafter's own cache at the end

  double acceptance() const { return drafted != 0 ? double(accepted) / double(drafted) : 0.0; }
};

struct Generation {
  std::string text;
  int tokens = 0;            ///< sampled, the end token included
  double first_token_s = 0;  ///< from the call to the first sampled token
  double decode_s = 0;       ///< of the steps after it
  double worst_step_s = 0;
  StopReason reason = StopReason::kEnd;
  SpeculationStats speculation;
  int contrasted = 0;  ///< tokens that were sampled with contrast
  double tokens_per_s() const { return decode_s > 0 ? (tokens - 1) / decode_s : 0; }
};

/// Continues a session. first_logits: of the last token fed, [vocabulary]. Afterwards the session holds what it held
/// and the answer without its last token, whatever was drafted; the prior of contrast what it held and as much of the
/// answer as it was asked about.
Result<Generation> generate(Engine& engine, SessionId session, model::Sampler& sampler,
                            std::span<const float> first_logits, const GenerateOptions& options);

}  // namespace varve::engine
