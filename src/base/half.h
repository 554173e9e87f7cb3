#pragma once
// IEEE binary16 <-> binary32, round to nearest even, for scalar code. Kernels use the machine's own conversions.

#include <bit>
#include <cstdint>

namespace varve {

using half_t = uint16_t;  ///< the bits of an IEEE binary16

inline float half_to_float(half_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

inline half_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const half_t sign = static_cast<half_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<half_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<half_t>(sign | 0x7c00u);  // rounds past 65504: infinity
  if (magnitude < 0x38800000u) {                                             // subnormal or zero
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    const uint32_t whole = static_cast<uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(whole);
    const uint32_t up = rest > 0.5f || (rest == 0.5f && (whole & 1u));
    return static_cast<half_t>(sign | (whole + up));
  }
  const uint32_t rebased = magnitude - 0x38000000u;
  const uint32_t rounded = rebased + 0xfffu + ((rebased >> 13) & 1u);
  return static_cast<half_t>(sign | (rounded >> 13));
}

}  // namespace varve
