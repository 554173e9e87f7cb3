#pragma once
// OCP E4M3FN: sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity, 0x7f and 0xff are NaN, largest 448,
// smallest normal 2^-6, smallest subnormal 2^-9.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace varve::format::fp8 {

inline constexpr float kMax = 448.0f;

inline float e4m3_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::bit_cast<float>(static_cast<uint32_t>((exponent + 120) << 23 | mantissa << 20));
  }
  return code & 0x80 ? -magnitude : magnitude;
}

/// Round to nearest even, saturating at +-448. x must be finite. Free of branches, so that loops over it vectorise.
inline uint8_t e4m3_from_float(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const float bounded = magnitude < kMax ? magnitude : kMax;
  const uint32_t b = std::bit_cast<uint32_t>(bounded);
  // Normal: keep 3 mantissa bits, move the exponent bias from 127 to 7.
  const uint32_t normal = ((b + 0x7ffffu + ((b >> 20) & 1u)) >> 20) - (120u << 3);
  // Below 2^-6: a count of 2^-9. Adding 2^14 leaves exactly that count in the low mantissa bits, rounded to even.
  const uint32_t subnormal = std::bit_cast<uint32_t>(bounded + 0x1p14f) & 0xfu;
  return static_cast<uint8_t>(sign | (bounded < 0x1p-6f ? subnormal : normal));
}

}  // namespace varve::format::fp8
