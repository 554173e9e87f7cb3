// Exact rows of low-rank blocks: bounds, lost rows, what is stored.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lr_support.h"

namespace varve::format {
namespace {

using namespace test;

constexpr RowCodec kRowCodecs[] = {RowCodec::kInt8, RowCodec::kInt4, RowCodec::kF16};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Between guard zones of row_bytes each.
std::vector<float> row_round_trip(RowCodec codec, const std::vector<float>& x) {
  const int head_dim = static_cast<int>(x.size());
  const size_t n = row_bytes(codec, head_dim);
  std::vector<uint8_t> bytes(3 * n, 0xa5);
  encode_row(codec, head_dim, x.data(), bytes.data() + n);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(bytes[i], 0xa5) << i;
    EXPECT_EQ(bytes[2 * n + i], 0xa5) << i;
  }
  std::vector<float> back(x.size() + 1, 77.0f);
  decode_row(codec, head_dim, bytes.data() + n, back.data());
  EXPECT_EQ(back.back(), 77.0f);
  back.pop_back();
  return back;
}

/// Half a step of the group of x[d]: its range, with the zero's own rounding, over the codes.
double half_step(RowCodec codec, const std::vector<float>& x, size_t d) {
  const size_t begin = d / kRowGroup * kRowGroup, end = std::min(x.size(), begin + kRowGroup);
  const auto [low, high] =
      std::minmax_element(x.begin() + static_cast<ptrdiff_t>(begin), x.begin() + static_cast<ptrdiff_t>(end));
  const double ulp = std::fabs(static_cast<double>(*low)) * 0x1p-10 + 0x1p-24;
  const double range = static_cast<double>(*high) - static_cast<double>(*low) + ulp;
  const double step = range / (codec == RowCodec::kInt8 ? 255 : 15) * (1 + 0x1p-10) + 0x1p-24;
  return step / 2 * (1 + 1e-4);
}

TEST(LrRows, IntegerRowsAreWithinHalfAStepOfTheirGroup) {
  for (const RowCodec codec : {RowCodec::kInt8, RowCodec::kInt4}) {
    for (const int head_dim : kHeadDims) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        auto x = gaussian(static_cast<size_t>(head_dim), seed, std::pow(10.0f, static_cast<float>(seed % 7) - 3));
        const float offset = seed % 2 == 0 ? 0.0f : 25.0f;
        for (float& e : x) e += offset;
        const auto back = row_round_trip(codec, x);
        for (size_t d = 0; d < x.size(); ++d) {
          EXPECT_LE(std::fabs(back[d] - x[d]), half_step(codec, x, d)) << head_dim << " seed " << seed << " at " << d;
        }
      }
    }
  }
}

TEST(LrRows, GroupsDoNotShareTheirRange) {
  // One loud group of 64 must not cost the quiet one its steps.
  std::vector<float> x = gaussian(128, 3);
  for (size_t d = 0; d < 64; ++d) x[d] *= 1000;
  const auto back = row_round_trip(RowCodec::kInt8, x);
  for (size_t d = 64; d < 128; ++d) EXPECT_NEAR(back[d], x[d], 0.02f) << d;
}

TEST(LrRows, F16RowsAreF16) {
  const auto x = gaussian(80, 5, 100);
  const auto back = row_round_trip(RowCodec::kF16, x);
  for (size_t d = 0; d < x.size(); ++d) EXPECT_EQ(back[d], half_to_float(float_to_half(x[d])));
}

TEST(LrRows, EqualElementsAndZerosAreKept) {
  for (const RowCodec codec : kRowCodecs) {
    for (const float value : {0.0f, -0.0f, 1.0f, -2.5f, 1e-7f, -1e-7f, 1000.0f, -60000.0f}) {
      const auto back = row_round_trip(codec, std::vector<float>(96, value));
      const float error = std::fabs(value) * 0x1p-10f + 0x1p-23f;
      for (const float e : back) EXPECT_NEAR(e, value, error);
      if (value == 0) {
        for (const float e : back) EXPECT_EQ(e, 0.0f);
      }
    }
  }
}

TEST(LrRows, TheLargestRangeFits) {
  for (const RowCodec codec : {RowCodec::kInt8, RowCodec::kInt4}) {
    std::vector<float> x = gaussian(64, 9, 100);
    x[7] = 65504;
    x[9] = -65504;
    const auto back = row_round_trip(codec, x);
    for (size_t d = 0; d < x.size(); ++d) EXPECT_LE(std::fabs(back[d] - x[d]), half_step(codec, x, d)) << d;
  }
}

TEST(LrRows, LostRowsAreNanThroughout) {
  for (const float bad : {kNan, kInfinity, -kInfinity, -1e30f, 1e30f}) {
    for (const size_t at : {size_t{0}, size_t{63}, size_t{64}, size_t{79}}) {
      auto x = gaussian(80, 4);
      x[at] = bad;
      for (const RowCodec codec : {RowCodec::kInt8, RowCodec::kInt4}) {
        for (const float e : row_round_trip(codec, x)) EXPECT_TRUE(std::isnan(e)) << bad << " at " << at;
      }
      const auto kept = row_round_trip(RowCodec::kF16, x);
      for (size_t d = 0; d < x.size(); ++d) EXPECT_EQ(std::isfinite(kept[d]), d != at) << bad;
    }
  }
}

TEST(LrRows, Int4CodesShareBytesByHalvesOfTheirGroup) {
  // Codes 0..15 and back: scale 1, zero 0.
  std::vector<float> x(80, 0.0f);
  for (size_t d = 0; d < 64; ++d) x[d] = static_cast<float>(d % 16);
  for (size_t d = 64; d < 80; ++d) x[d] = static_cast<float>(79 - d);
  std::vector<uint8_t> row(row_bytes(RowCodec::kInt4, 80));
  encode_row(RowCodec::kInt4, 80, x.data(), row.data());
  ASSERT_EQ(row.size(), 48u);
  const std::vector<uint8_t> factors = {0x00, 0x3c, 0, 0, 0x00, 0x3c, 0, 0};
  EXPECT_TRUE(std::equal(factors.begin(), factors.end(), row.begin()));
  for (size_t j = 0; j < 32; ++j) EXPECT_EQ(row[8 + j], j % 16 * 0x11) << j;
  for (size_t j = 0; j < 8; ++j) EXPECT_EQ(row[40 + j], (15 - j) | (7 - j) << 4) << j;
}

}  // namespace
}  // namespace varve::format
