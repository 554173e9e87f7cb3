#pragma once
// What the encoders ask of one row. Sums run in 16 lanes, so that compilers vectorise them without leave to reorder.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace varve::format {

inline constexpr half_t kHalfNan = 0x7e00;
inline constexpr half_t kHalfInfinity = 0x7c00;
inline constexpr int kLanes = 16;  ///< divides every supported head_dim

/// sum_d f(d) over [0, n), n a multiple of kLanes.
template <typename F>
float lane_sum(int n, F f) {
  float lanes[kLanes] = {};
  for (int d = 0; d < n; d += kLanes) {
    for (int i = 0; i < kLanes; ++i) lanes[i] += f(d + i);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// max |x|; infinity when the row holds an infinity, NaN when it holds a NaN.
inline float absmax(const float* x, int n) {
  // Magnitudes order like their bits, and NaN is above infinity.
  int32_t lanes[kLanes] = {};
  for (int d = 0; d < n; d += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      const int32_t magnitude = std::bit_cast<int32_t>(x[d + i]) & 0x7fffffff;
      lanes[i] = magnitude > lanes[i] ? magnitude : lanes[i];
    }
  }
  return std::bit_cast<float>(*std::max_element(lanes, lanes + kLanes));
}

/// Stored form of a scale or norm. What f16 cannot hold becomes NaN: the row is lost and says so.
inline half_t store_scale(float x) {
  const half_t h = float_to_half(x);
  return (h & 0x7fffu) >= kHalfInfinity ? kHalfNan : h;
}

/// As store_scale, rounded up, so that absmax / scale never exceeds the code range. x >= 0.
inline half_t store_scale_up(float x) {
  const half_t h = store_scale(x);
  if (h == kHalfNan || half_to_float(h) >= x) return h;
  return h + 1 == kHalfInfinity ? kHalfNan : static_cast<half_t>(h + 1);
}

/// Round to nearest even of |x| < 2^22, in a form compilers vectorise.
inline float round_even(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

}  // namespace varve::format
