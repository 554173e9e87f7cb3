#include "cli/prefill.h"

#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace varve::cli {

Status feed_with_progress(Engine& engine, SessionId session, std::span<const int32_t> tokens,
                          std::vector<float>& logits) {
  if (tokens.empty()) return {};
  Progress progress("reading", tokens.size(), Unit::kTokens);
  return engine.feed(session, tokens, Logits::kLast, logits, [&](int done, int) {
    progress.update(static_cast<uint64_t>(done));
    return !interrupted();
  });
}

}  // namespace varve::cli
