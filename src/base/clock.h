#pragma once
// Monotonic seconds, for measuring; never for deciding what a run computes.

#include <chrono>

namespace varve {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace varve
