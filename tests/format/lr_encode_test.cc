// What low-rank blocks keep of their rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "format/lr/encode.h"
#include "lr_support.h"

namespace varve::format {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

size_t half_of(const BlockShape& shape) { return static_cast<size_t>(shape.width() / 2); }

double side_error(const std::vector<float>& source, const std::vector<float>& decoded) {
  return std::sqrt(relative_mse(source.data(), decoded.data(), source.size()));
}

double row_energy(const BlockShape& shape, const std::vector<float>& x, int t) {
  return std::sqrt(energy(x.data() + static_cast<size_t>(t) * half_of(shape), half_of(shape)));
}

TEST(LrEncode, APageOfFewDirectionsIsKeptToItsCodes) {
  for (const int head_dim : kHeadDims) {
    for (const int kv_heads : {1, 3}) {
      const BlockShape shape{256, kv_heads, head_dim, {.rank = 16, .rows = 8}};
      const LrRows rows = lr_page(shape, 11, 6, 0);  // 12 directions of keys and values
      const LrBlock block = lr_encode(shape, rows, plain_options());
      const LrRows decoded = block.decode();
      EXPECT_LT(side_error(rows.k, decoded.k), 5e-3) << head_dim << " heads " << kv_heads;
      EXPECT_LT(side_error(rows.v, decoded.v), 5e-3) << head_dim << " heads " << kv_heads;
      EXPECT_GT(block.report.retained_energy, 0.99999);
    }
  }
}

TEST(LrEncode, AtFullRankOnlyTheCodesAreLost) {
  const BlockShape shape{128, 1, 64, {.rank = 127, .rows = 0}};
  const LrRows rows{gaussian(128 * 64, 1), gaussian(128 * 64, 2)};
  const LrBlock block = lr_encode(shape, rows, plain_options());
  EXPECT_EQ(block.report.rank, 127);
  const LrRows decoded = block.decode();
  EXPECT_LT(side_error(rows.k, decoded.k), 0.01);
  EXPECT_LT(side_error(rows.v, decoded.v), 0.01);
}

TEST(LrEncode, MoreRankAndMoreRowsLoseLess) {
  double last = 1e9;
  for (const LowRank format : {LowRank{4, 0}, LowRank{8, 0}, LowRank{16, 0}, LowRank{16, 32}, LowRank{32, 64}}) {
    const BlockShape shape{256, 2, 64, format};
    const LrRows rows = lr_page(shape, 5, 30, 0.2f);
    const LrRows decoded = lr_encode(shape, rows, plain_options()).decode();
    const double error = side_error(rows.k, decoded.k) + side_error(rows.v, decoded.v);
    EXPECT_LT(error, 0.95 * last) << format.rank << '+' << format.rows;
    last = error;
  }
}

TEST(LrEncode, TheAnchorIsRowZeroInF16) {
  const BlockShape shape{64, 2, 80, {.rank = 4, .rows = 3}};
  const LrRows rows = lr_page(shape, 21, 20);
  const LrBlock block = lr_encode(shape, rows);
  const LrRows decoded = block.decode();
  for (size_t d = 0; d < half_of(shape); ++d) {
    EXPECT_EQ(decoded.k[d], half_to_float(float_to_half(rows.k[d]))) << d;
    EXPECT_EQ(decoded.v[d], half_to_float(float_to_half(rows.v[d]))) << d;
  }
  EXPECT_FALSE(block.is_exact(0));
}

TEST(LrEncode, ExactRowsAreExactInKeysAndValuesOfEveryHead) {
  for (const RowCodec codec : {RowCodec::kInt8, RowCodec::kInt4, RowCodec::kF16}) {
    const BlockShape shape{256, 3, 64, {.rank = 4, .rows = 24, .row_codec = codec}};
    const LrRows rows = lr_page(shape, 31, 40, 1.0f);
    const LrBlock block = lr_encode(shape, rows, plain_options());
    ASSERT_EQ(block.report.rows, 24);
    const LrRows decoded = block.decode();
    // Against what the low-rank rows lose, an exact row loses next to nothing; on the wrong index set it would not.
    const double bound = codec == RowCodec::kInt4 ? 0.25 : 0.02;
    for (int t = 0; t < shape.tokens; ++t) {
      for (const auto& [source, back] : {std::pair(&rows.k, &decoded.k), std::pair(&rows.v, &decoded.v)}) {
        for (size_t head = 0; head < 3; ++head) {
          const size_t at = static_cast<size_t>(t) * half_of(shape) + head * 64;
          const double error = std::sqrt(relative_mse(source->data() + at, back->data() + at, 64));
          if (block.is_exact(t)) {
            EXPECT_LT(error, bound) << "row " << t << " head " << head;
          } else if (t > 0) {
            EXPECT_GT(error, 0.02) << "row " << t << " head " << head;
          }
        }
      }
    }
  }
}

TEST(LrEncode, RowsAreChosenByTheErrorOfWhatIsStored) {
  // One row is so long in the first direction that int8 steps there are coarse: errors against unrounded U would choose
  // other rows. Compared with a block that has no rows, whose decoded rows show the errors.
  BlockShape shape{128, 1, 64, {.rank = 6, .rows = 0}};
  LrRows rows = lr_page(shape, 41, 3, 0.02f);
  for (size_t d = 0; d < 64; ++d) {
    rows.k[50 * 64 + d] += 60 * (rows.k[9 * 64 + d] - rows.k[d]);
    rows.v[50 * 64 + d] += 60 * (rows.v[9 * 64 + d] - rows.v[d]);
  }
  LowRankOptions options = plain_options();
  const LrBlock bare = lr_encode(shape, rows, options);
  ASSERT_EQ(bare.report.rank, 6);
  const int spare = bare.report.rows;  // what padding leaves
  const LrRows decoded = bare.decode();
  std::vector<double> errors(128);
  double k_energy = 0, v_energy = 0;
  for (size_t t = 0; t < 128; ++t) {
    for (size_t d = 0; d < 64; ++d) {
      k_energy += std::pow(static_cast<double>(rows.k[t * 64 + d]) - static_cast<double>(decoded.k[d]), 2);
      v_energy += std::pow(static_cast<double>(rows.v[t * 64 + d]) - static_cast<double>(decoded.v[d]), 2);
    }
  }
  const double balance = std::clamp(std::sqrt(k_energy / v_energy), 1.0, 1e4);
  for (int t = 0; t < 128; ++t) {
    errors[static_cast<size_t>(t)] =
        std::hypot(row_error(shape, rows.k, decoded.k, t), balance * row_error(shape, rows.v, decoded.v, t));
  }
  ASSERT_EQ(spare, 0);
  shape.format.rows = 10;
  const LrBlock block = lr_encode(shape, rows, options);
  std::vector<int> order(128);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return errors[static_cast<size_t>(a)] > errors[static_cast<size_t>(b)]; });
  std::vector<int> worst(order.begin(), order.begin() + block.report.rows);
  std::sort(worst.begin(), worst.end());
  EXPECT_EQ(block.exact_rows(), worst);
}

TEST(LrEncode, AScalePerDirectionBeatsOnePerBlock) {
  const BlockShape shape{256, 2, 64, {.rank = 24, .rows = 0}};
  const LrRows rows = lr_page(shape, 51, 11, 0);  // 22 directions
  const LrBlock block = lr_encode(shape, rows, plain_options());
  const LrRows decoded = block.decode();
  // The same block with one scale: U as stored, rounded again to steps of the longest direction.
  const BlockView view = block.view();
  const size_t rank = static_cast<size_t>(view.rank), width = static_cast<size_t>(shape.width());
  std::vector<double> length(rank);
  for (size_t i = 0; i < rank; ++i) {
    for (size_t plane = 0; plane < width / 64; ++plane) {
      for (size_t d = 0; d < 64; ++d) {
        length[i] += std::pow(static_cast<double>(half_to_float(view.basis[(plane * rank + i) * 64 + d])), 2);
      }
    }
    length[i] = std::sqrt(length[i]);
  }
  const double step = *std::max_element(length.begin(), length.end());
  LrRows one_scale = decoded;
  for (size_t t = 0; t < 256; ++t) {
    if (block.is_exact(static_cast<int>(t))) continue;
    for (size_t i = 0; i < rank; ++i) {
      const double u = static_cast<double>(view.u[(t / 64 * rank + i) * 64 + t % 64]);
      const double change = std::nearbyint(u * length[i] / step) * step / length[i] - u;
      for (size_t plane = 0; plane < width / 64; ++plane) {
        auto& side = plane % 2 == 0 ? one_scale.k : one_scale.v;
        for (size_t d = 0; d < 64; ++d) {
          side[t * width / 2 + plane / 2 * 64 + d] +=
              static_cast<float>(change * static_cast<double>(half_to_float(view.basis[(plane * rank + i) * 64 + d])));
        }
      }
    }
  }
  EXPECT_LT(side_error(rows.k, decoded.k), 0.8 * side_error(rows.k, one_scale.k));
  EXPECT_LT(side_error(rows.v, decoded.v), 0.8 * side_error(rows.v, one_scale.v));
}

TEST(LrEncode, QuietValuesKeepTheirShareOfTheDirections) {
  const BlockShape shape{256, 2, 64, {.rank = 20, .rows = 0}};
  LrRows rows = lr_page(shape, 61, 8, 0.05f);
  const double loud = side_error(rows.v, lr_encode(shape, rows, plain_options()).decode().v);
  for (float& x : rows.v) x *= 1e-3f;
  const double quiet = side_error(rows.v, lr_encode(shape, rows, plain_options()).decode().v);
  EXPECT_LT(quiet, 1.5 * loud);
}

TEST(LrEncode, EnergyChoosesTheRankAndItsBytesBecomeRows) {
  const BlockShape shape{256, 2, 64, {.rank = 32, .rows = 16}};
  const LrRows rows = lr_page(shape, 71, 4, 0.02f);
  LowRankOptions options;
  options.energy = 0.99;
  const LrBlock block = lr_encode(shape, rows, options);
  EXPECT_LT(block.report.rank, 16);
  EXPECT_GE(block.report.rank, options.least_rank);
  EXPECT_GE(block.report.retained_energy, 0.99);
  EXPECT_EQ(block.report.rows, rows_at_rank(shape, block.report.rank));
  EXPECT_GT(block.report.rows, 16);
  EXPECT_EQ(block.view().rank, block.report.rank);
  EXPECT_EQ(block.view().rows, block.report.rows);

  TokenTraits formulas;
  formulas.rank_boost = 1.5f;
  EXPECT_EQ(lr_encode(shape, rows, options, formulas).report.rank,
            static_cast<int>(std::ceil(1.5f * static_cast<float>(block.report.rank))));
  formulas.rank_boost = 100;
  EXPECT_EQ(lr_encode(shape, rows, options, formulas).report.rank, 32) << "never above the format";
  options.energy = 0.01;
  EXPECT_EQ(lr_encode(shape, rows, options).report.rank, options.least_rank);
}

TEST(LrEncode, NoBudgetForRows) {
  const BlockShape shape{128, 2, 64, {.rank = 12, .rows = 0}};
  const LrRows rows = lr_page(shape, 81, 30);
  TokenTraits traits;
  traits.runs = {{10, 20, true}};
  const LrBlock block = lr_encode(shape, rows, plain_options(), traits);
  EXPECT_EQ(block.report.rank, 12);
  EXPECT_EQ(block.report.rows, 0);
  EXPECT_EQ(block.report.runs_left_out, 1);
  for (const float x : block.decode().k) ASSERT_TRUE(std::isfinite(x));
}

TEST(LrEncode, ConstantAndZeroPagesAreExactWithoutDirections) {
  for (const float value : {0.0f, 2.5f, -300.0f}) {
    const BlockShape shape{128, 2, 64, {.rank = 8, .rows = 4}};
    const std::vector<float> side(128 * 128, value);
    const LrBlock block = lr_encode(shape, {side, side});
    EXPECT_EQ(block.report.rank, 0);
    EXPECT_EQ(block.report.rows, 0);
    EXPECT_EQ(block.report.retained_energy, 1.0);
    const LrRows decoded = block.decode();
    EXPECT_EQ(decoded.k, side);
    EXPECT_EQ(decoded.v, side);
  }
}

TEST(LrEncode, EqualRowsThatF16CannotHoldExactly) {
  // The anchor is rounded, so deltas of equal rows are the rounding error, and the same for all.
  const BlockShape shape{64, 1, 64, {.rank = 4, .rows = 2}};
  std::vector<float> side(64 * 64);
  for (size_t i = 0; i < side.size(); ++i) side[i] = 1.0f + static_cast<float>(i % 64) * 0.01234f;
  const LrRows decoded = lr_encode(shape, {side, side}).decode();
  for (size_t i = 0; i < side.size(); ++i) EXPECT_NEAR(decoded.k[i], side[i], 1e-3f) << i;
}

TEST(LrEncode, OneRowUnlikeTheOthers) {
  for (const int odd : {1, 37, 63}) {
    const BlockShape shape{64, 2, 64, {.rank = 8, .rows = 0}};
    LrRows rows{std::vector<float>(64 * 128, 1.0f), std::vector<float>(64 * 128, -1.0f)};
    const auto k = gaussian(128, 3), v = gaussian(128, 4);
    std::copy(k.begin(), k.end(), rows.k.begin() + odd * 128);
    std::copy(v.begin(), v.end(), rows.v.begin() + odd * 128);
    const LrBlock block = lr_encode(shape, rows);
    EXPECT_EQ(block.report.rank, 1);
    const LrRows decoded = block.decode();
    for (int t = 0; t < 64; ++t) {
      EXPECT_LT(row_error(shape, rows.k, decoded.k, t), t == odd ? 0.02 : 1e-9) << t;
      EXPECT_LT(row_error(shape, rows.v, decoded.v, t), t == odd ? 0.02 : 1e-9) << t;
    }
  }
}

TEST(LrEncode, DuplicateRowsDecodeAlike) {
  const BlockShape shape{256, 2, 64, {.rank = 24, .rows = 0}};
  LrRows rows = lr_page(shape, 91, 10, 0);
  for (size_t t = 8; t < 256; ++t) {
    std::copy_n(rows.k.data() + t % 8 * 128, 128, rows.k.data() + t * 128);
    std::copy_n(rows.v.data() + t % 8 * 128, 128, rows.v.data() + t * 128);
  }
  const LrBlock block = lr_encode(shape, rows);
  EXPECT_LE(block.report.rank, 8) << "eight distinct rows, one of them the anchor";
  const LrRows decoded = block.decode();
  for (size_t t = 0; t < 256; ++t) {
    if (block.is_exact(static_cast<int>(t)) || block.is_exact(static_cast<int>(t % 8))) continue;
    for (size_t d = 0; d < 128; ++d) ASSERT_EQ(decoded.k[t * 128 + d], decoded.k[t % 8 * 128 + d]) << t;
  }
  EXPECT_LT(side_error(rows.k, decoded.k), 0.01);
}

TEST(LrEncode, LostRowsLoseNothingElse) {
  for (const float bad : {kNan, kInfinity, -kInfinity, 1e30f}) {
    const BlockShape shape{128, 2, 64, {.rank = 8, .rows = 6}};
    LrRows rows = lr_page(shape, 101, 3, 0.02f);
    rows.k[70 * 128 + 3] = bad;   // head 0, keys
    rows.v[10 * 128 + 64] = bad;  // head 1, values
    const LrBlock block = lr_encode(shape, rows);
    EXPECT_EQ(block.report.rows_lost, 2);
    EXPECT_TRUE(block.is_exact(70));
    EXPECT_TRUE(block.is_exact(10));
    const LrRows decoded = block.decode();
    for (size_t i = 0; i < decoded.k.size(); ++i) {
      const size_t t = i / 128, head = i % 128 / 64;
      EXPECT_EQ(std::isnan(decoded.k[i]), t == 70 && head == 0) << bad << " at " << i;
      EXPECT_EQ(std::isnan(decoded.v[i]), t == 10 && head == 1) << bad << " at " << i;
      if (!std::isnan(decoded.k[i])) {
        EXPECT_NEAR(decoded.k[i], rows.k[i], 1.0f) << i;
      }
      if (!std::isnan(decoded.v[i])) {
        EXPECT_NEAR(decoded.v[i], rows.v[i], 1.0f) << i;
      }
    }
  }
}

TEST(LrEncode, LostRowsTakeRankWhenRowsAreFew) {
  const BlockShape shape{128, 1, 64, {.rank = 16, .rows = 0}};
  LrRows rows = lr_page(shape, 111, 20);
  for (size_t t = 20; t < 30; ++t) rows.k[t * 64] = kNan;
  const LrBlock block = lr_encode(shape, rows, plain_options());
  EXPECT_EQ(block.report.rows_lost, 10);
  EXPECT_EQ(block.report.rows, rows_at_rank(shape, block.report.rank));
  EXPECT_LT(block.report.rank, 16);
  EXPECT_GT(block.report.rank, 8);
  const LrRows decoded = block.decode();
  for (size_t t = 0; t < 128; ++t) {
    EXPECT_EQ(std::isnan(decoded.k[t * 64]), t >= 20 && t < 30) << t;
    EXPECT_FALSE(std::isnan(decoded.v[t * 64])) << t;
  }
}

TEST(LrEncode, ABlockThatCannotHoldItsLostRowsIsLost) {
  const BlockShape shape{128, 1, 64, {.rank = 2, .rows = 0}};
  LrRows rows = lr_page(shape, 121);
  for (size_t t = 20; t < 60; ++t) rows.k[t * 64] = kNan;
  const LrBlock block = lr_encode(shape, rows);
  EXPECT_EQ(block.report.rows_lost, 128);
  const LrRows decoded = block.decode();
  for (const float x : decoded.k) ASSERT_TRUE(std::isnan(x));
  for (const float x : decoded.v) ASSERT_TRUE(std::isnan(x));
  // No sound row at all.
  std::fill(rows.v.begin(), rows.v.end(), kInfinity);
  EXPECT_EQ(lr_encode(shape, rows).report.rows_lost, 128);
}

TEST(LrEncode, ALostFirstRowIsNotTheAnchor) {
  const BlockShape shape{128, 2, 64, {.rank = 8, .rows = 6}};
  LrRows rows = lr_page(shape, 131, 3, 0.02f);
  const LrRows sound = rows;
  rows.k[5] = kNan;
  const LrBlock block = lr_encode(shape, rows);
  EXPECT_TRUE(block.is_exact(0));
  const LrRows decoded = block.decode();
  for (size_t i = 0; i < decoded.k.size(); ++i) {
    EXPECT_EQ(std::isnan(decoded.k[i]), i < 64) << i;
    if (i >= 64) {
      EXPECT_NEAR(decoded.k[i], sound.k[i], 0.3f) << i;
    }
    EXPECT_NEAR(decoded.v[i], sound.v[i], 0.3f) << i;
  }
}

TEST(LrEncode, SinksWeighNothing) {
  const BlockShape shape{128, 2, 64, {.rank = 8, .rows = 12}};
  LrRows rows = lr_page(shape, 141, 6, 0.02f);
  TokenTraits traits;
  traits.runs = {{2, 6, true}};
  const LrBlock quiet = lr_encode(shape, rows, {}, traits, 4);
  for (size_t i = 0; i < 4 * 128; ++i) rows.k[i] = i % 3 == 0 ? kNan : 1e4f;  // nothing of a sink may matter
  const LrBlock loud = lr_encode(shape, rows, {}, traits, 4);
  EXPECT_EQ(loud.bytes, quiet.bytes);
  EXPECT_EQ(loud.report.rows_lost, 0);
  for (int t = 0; t < 5; ++t) EXPECT_FALSE(loud.is_exact(t)) << "the sinks, and the anchor behind them";
  EXPECT_TRUE(loud.is_exact(5)) << "what is left of the run";
  const LrRows decoded = loud.decode();
  for (size_t d = 0; d < 128; ++d) EXPECT_EQ(decoded.k[4 * 128 + d], half_to_float(float_to_half(rows.k[4 * 128 + d])));
}

TEST(LrEncode, RunsReachTheBlock) {
  const BlockShape shape{256, 2, 64, {.rank = 6, .rows = 11}};
  const LrRows rows = lr_page(shape, 151, 30, 0.5f);
  LowRankOptions options = plain_options();
  TokenTraits traits;
  traits.runs = {{120, 131, true}};
  const LrBlock block = lr_encode(shape, rows, options, traits);
  EXPECT_EQ(block.report.rows_of_runs, 11);
  std::vector<int> expected(11);
  std::iota(expected.begin(), expected.end(), 120);
  EXPECT_EQ(block.exact_rows(), expected);
  EXPECT_EQ(block.view().tile_rows[1], 0);
  EXPECT_EQ(block.view().tile_rows[2], 8) << "120..127 are of tile 1";
  EXPECT_EQ(block.view().tile_rows[3], 11);
  EXPECT_EQ(block.view().tile_rows[4], 11);
  const LrRows decoded = block.decode();
  for (int t = 120; t < 131; ++t)
    EXPECT_LT(row_error(shape, rows.k, decoded.k, t), 0.02 * row_energy(shape, rows.k, t));
}

TEST(LrEncode, SameInputSameBytesWhateverCameBefore) {
  const BlockShape shape{192, 2, 64, {.rank = 12, .rows = 20}};
  const LrRows a = lr_page(shape, 1, 30), b = lr_page(shape, 2, 30);
  const LowRankOptions options;
  std::vector<float> scratch(encode_scratch_floats(shape, options));
  std::vector<uint8_t> bytes(block_bytes(shape));
  const auto encode = [&](const LrRows& rows) {
    encode_block(shape, options, {}, 0, rows.k.data(), rows.v.data(), plain_gemm, scratch.data(), bytes.data());
    return bytes;
  };
  const auto first = encode(a);
  EXPECT_NE(encode(b), first);
  EXPECT_EQ(encode(a), first);
  EXPECT_EQ(lr_encode(shape, a).bytes, first);
  LowRankOptions other;
  other.seed = 99;
  EXPECT_NE(lr_encode(shape, a, other).bytes, first) << "the seed is that of the sketch";
}

TEST(LrEncode, LargeAndSmallRowsStayFinite) {
  for (const float scale : {1e-5f, 1e-2f, 1e3f, 4e3f}) {
    const BlockShape shape{128, 2, 64, {.rank = 24, .rows = 4}};
    LrRows rows = lr_page(shape, 161, 6, 0.02f);
    for (float& x : rows.k) x *= scale;
    for (float& x : rows.v) x *= scale;
    const LrBlock block = lr_encode(shape, rows);
    EXPECT_EQ(block.report.rows_lost, 0);
    const LrRows decoded = block.decode();
    for (const float x : decoded.k) ASSERT_TRUE(std::isfinite(x)) << scale;
    // Products of integers with f16 basis elements end at 2^-24.
    EXPECT_LT(side_error(rows.k, decoded.k), scale < 1e-4f ? 0.2 : 0.01) << scale;
    EXPECT_LT(side_error(rows.v, decoded.v), scale < 1e-4f ? 0.2 : 0.01) << scale;
  }
}

TEST(LrEncode, AValueThatTheBalanceBlowsUpStaysFinite) {
  // Quiet values but for one row, which the balance multiplies with what the loud keys ask for.
  const BlockShape shape{128, 2, 64, {.rank = 8, .rows = 4}};
  LrRows rows = lr_page(shape, 171, 3, 0.02f);
  for (float& x : rows.k) x *= 3000;
  for (float& x : rows.v) x *= 1e-4f;
  std::fill_n(rows.v.begin() + 77 * 128, 128, 100.0f);
  const LrRows decoded = lr_encode(shape, rows).decode();
  for (const float x : decoded.k) ASSERT_TRUE(std::isfinite(x));
  for (const float x : decoded.v) ASSERT_TRUE(std::isfinite(x));
  EXPECT_LT(row_error(shape, rows.v, decoded.v, 77), 0.02 * row_energy(shape, rows.v, 77));
}

TEST(LrEncode, RowsThatTheirCodesWouldLoseMoreOfStayLowRank) {
  // Directions hold the page better than four bits hold a row, but for the one row that they do not hold.
  const BlockShape shape{256, 2, 64, {.rank = 12, .rows = 30, .row_codec = RowCodec::kInt4}};
  LrRows rows = lr_page(shape, 191, 6, 0.01f);
  const auto odd = gaussian(128, 5);
  for (size_t d = 0; d < 128; ++d) rows.k[200 * 128 + d] += odd[d];
  const LrBlock block = lr_encode(shape, rows, plain_options());
  EXPECT_EQ(block.exact_rows(), std::vector<int>{200});
  BlockShape fine = shape;
  fine.format.row_codec = RowCodec::kF16;
  EXPECT_EQ(lr_encode(fine, rows, plain_options()).report.rows, 30);
}

TEST(LrEncode, TheLargestBlock) {
  const BlockShape shape{1024, 2, 64, {.rank = 32, .rows = 64}};
  const LrRows rows = lr_page(shape, 181, 12, 0.05f);
  const LrBlock block = lr_encode(shape, rows);
  const LrRows decoded = block.decode();
  EXPECT_LT(side_error(rows.k, decoded.k), 0.03);
  EXPECT_LT(side_error(rows.v, decoded.v), 0.03);
  EXPECT_LE(block.report.rows, 1023);
}

}  // namespace
}  // namespace varve::format
