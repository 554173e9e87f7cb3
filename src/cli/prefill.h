#pragma once
// Reading a prompt into a session while a person waits.

#include <cstdint>
#include <span>
#include <vector>

#include "varve/engine.h"

namespace varve::cli {

/// Engine::feed with a progress line. logits: after the last token. kCancelled on Ctrl-C; what was fed stays.
Status feed_with_progress(Engine& engine, SessionId session, std::span<const int32_t> tokens,
                          std::vector<float>& logits);

}  // namespace varve::cli
