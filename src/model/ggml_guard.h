#pragma once
// Calls into ggml and libllama that may log, throw or fail an assertion, made safe: the calling thread's log lines are
// collected instead of printed, and whatever goes wrong comes back as a Status.

#include <string>
#include <type_traits>

#include "varve/status.h"

namespace varve::model {

/// Takes over ggml's and libllama's process-wide log and abort hooks (once; later calls do nothing). Log lines are
/// dropped unless the thread is inside guarded().
void install_ggml_hooks();

namespace detail {
Status guarded(const std::string& what, Status (*call)(void*), void* fn);
}

/// Runs fn() -> Status. An assertion of ggml that fails in this thread, and any exception, become a Status that starts
/// with `what` and carries the errors logged meanwhile. ggml's worker threads are not covered. Allocates nothing
/// itself.
template <typename Fn>
Status guarded(const std::string& what, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  return detail::guarded(
      what, [](void* f) -> Status { return (*static_cast<Callable*>(f))(); }, &fn);
}

/// Errors logged so far by the innermost guarded() of this thread, joined with "; ".
std::string guarded_log();

}  // namespace varve::model
