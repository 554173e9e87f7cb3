#pragma once
// The decode loop of one session: sample, show, feed, until an end token, a stop string, a limit or the caller says so.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampler.h"
#include "varve/engine.h"

namespace varve::engine {

struct GenerateOptions {
  int max_tokens = 512;
  std::vector<std::string> stops;
  /// Text as it becomes safe to show; false stops the answer.
  std::function<bool(std::string_view)> on_text;
};

enum class StopReason { kEnd, kStopString, kMaxTokens, kContextFull, kCaller };
const char* stop_reason_name(StopReason reason);  ///< "end", "stop", "length", "context", "interrupted"

struct Generation {
  std::string text;
  int tokens = 0;              ///< sampled, the end token included
  double first_token_s = 0;    ///< from the call to the first sampled token
  double decode_s = 0;         ///< of the steps after it
  double worst_step_s = 0;
  StopReason reason = StopReason::kEnd;
  double tokens_per_s() const { return decode_s > 0 ? (tokens - 1) / decode_s : 0; }
};

/// Continues a session. first_logits: of the last token fed, [vocabulary].
Result<Generation> generate(Engine& engine, SessionId session, model::Sampler& sampler,
                            std::span<const float> first_logits, const GenerateOptions& options);

}  // namespace varve::engine
