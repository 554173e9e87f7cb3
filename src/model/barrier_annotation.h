#pragma once
// ggml's barrier and pool order what the threads of a graph do, but ggml is not built with the thread sanitizer, which
// therefore must be told. Without the sanitizer these are nothing.

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace varve::model {

/// Everything before the matching ordered_before() on any thread is seen by what follows.
inline void ordered_after([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(what);
#endif
}

/// Everything so far on this thread is seen by what follows an ordered_after().
inline void ordered_before([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(what);
#endif
}

}  // namespace varve::model
