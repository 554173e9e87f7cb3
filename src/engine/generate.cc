#include "engine/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/text_stream.h"
#include "model/text.h"

namespace varve::engine {

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd: return "end";
    case StopReason::kStopString: return "stop";
    case StopReason::kMaxTokens: return "length";
    case StopReason::kContextFull: return "context";
    case StopReason::kCaller: return "interrupted";
  }
  return "end";
}

Result<Generation> generate(Engine& engine, SessionId session, model::Sampler& sampler,
                            std::span<const float> first_logits, const GenerateOptions& options) {
  const model::Model& model = *engine.model();
  Generation out;
  TextStream stream(options.stops);
  std::vector<float> logits(first_logits.begin(), first_logits.end());
  bool go_on = true;
  const auto show = [&](const std::string& text) {
    out.text += text;
    if (!text.empty() && options.on_text) go_on = options.on_text(text);
  };

  const double start = now_s();
  out.reason = StopReason::kMaxTokens;
  while (out.tokens < options.max_tokens) {
    const auto token = sampler.sample(logits);
    if (!token.ok()) return token.status();
    if (out.tokens++ == 0) out.first_token_s = now_s() - start;
    if (Status s = sampler.accept(*token); !s.ok()) return s;
    if (model::is_end_of_generation(model, *token)) {
      out.reason = StopReason::kEnd;
      break;
    }
    const auto piece = model::piece(model, *token, false);
    if (!piece.ok()) return piece.status();
    show(stream.push(*piece));
    if (!go_on || stream.stopped()) {
      out.reason = go_on ? StopReason::kStopString : StopReason::kCaller;
      break;
    }
    if (out.tokens == options.max_tokens) break;
    if (int64_t(engine.tokens(session).size()) == engine.context_tokens()) {
      out.reason = StopReason::kContextFull;
      break;
    }
    const double step_start = now_s();
    const Feed feed{session, {&*token, 1}, Logits::kLast};
    if (Status s = engine.step({&feed, 1}, logits); !s.ok()) return s;
    const double step_s = now_s() - step_start;
    out.decode_s += step_s;
    out.worst_step_s = std::max(out.worst_step_s, step_s);
  }
  show(stream.finish());
  return out;
}

}  // namespace varve::engine
