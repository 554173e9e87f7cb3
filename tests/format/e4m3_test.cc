#include "format/fp8/e4m3.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve::format::fp8 {
namespace {

/// The value of a code, from the definition of the type.
double defined_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

TEST(E4m3, EveryCodeDecodesToItsDefinition) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), defined_value(code)) << code;
      EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
      EXPECT_EQ(e4m3_from_float(value), code);
    }
  }
}

/// Nearest code, ties to the even one, saturating; by search.
int nearest(double magnitude) {
  if (magnitude >= 448) return 0x7e;
  int best = 0;
  for (int code = 1; code <= 0x7e; ++code) {
    const double d = std::fabs(defined_value(code) - magnitude), so_far = std::fabs(defined_value(best) - magnitude);
    if (d < so_far || (d == so_far && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(E4m3, RoundsToNearestEvenAroundEveryBoundary) {
  for (int code = 0; code < 0x7e; ++code) {
    const float middle = static_cast<float>((defined_value(code) + defined_value(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(e4m3_from_float(middle), even) << code;
    EXPECT_EQ(e4m3_from_float(-middle), even | 0x80) << code;
    EXPECT_EQ(e4m3_from_float(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(e4m3_from_float(std::nextafter(middle, 1000.0f)), code + 1);
  }
}

TEST(E4m3, EveryUpperHalfOfAFloat) {
  for (uint32_t top = 0; top < 0x7f80; ++top) {  // all finite positive floats with 16 zero bits below
    const float x = std::bit_cast<float>(top << 16);
    const int expected = nearest(static_cast<double>(x));
    ASSERT_EQ(e4m3_from_float(x), expected) << x;
    ASSERT_EQ(e4m3_from_float(-x), expected | 0x80) << x;
  }
}

}  // namespace
}  // namespace varve::format::fp8
