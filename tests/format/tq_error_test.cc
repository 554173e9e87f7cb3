// The rotated scalar codes against closed-form and Monte Carlo values on Gaussian rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <numbers>

#include "format/rotation.h"
#include "format/tq/codebook.h"
#include "support.h"

namespace varve::format {
namespace {

using namespace test;

double phi(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double upper_tail(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

/// Mean squared error of nearest-level coding of N(0, 1) with ascending antisymmetric levels.
double gaussian_mse(const std::vector<double>& levels) {
  // E(x - c)^2 = 1 - 2 E(x c) + E(c^2), cell by cell.
  double mse = 1;
  for (size_t i = 0; i < levels.size(); ++i) {
    const bool first = i == 0, last = i + 1 == levels.size();
    const double low = first ? -40 : (levels[i - 1] + levels[i]) / 2;
    const double high = last ? 40 : (levels[i] + levels[i + 1]) / 2;
    const double mass = upper_tail(low) - upper_tail(high);
    const double moment = phi(low) - phi(high);
    mse += levels[i] * levels[i] * mass - 2 * levels[i] * moment;
  }
  return mse;
}

/// Lloyd's iteration to its fixed point.
double lloyd_max_mse(int bits) {
  std::vector<double> levels(size_t{1} << bits);
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = -3.0 + 6.0 * (static_cast<double>(i) + 0.5) / static_cast<double>(levels.size());
  }
  for (double moved = 1; moved > 1e-9;) {
    std::vector<double> next(levels.size());
    moved = 0;
    for (size_t i = 0; i < levels.size(); ++i) {
      const double low = i == 0 ? -40 : (levels[i - 1] + levels[i]) / 2;
      const double high = i + 1 == levels.size() ? 40 : (levels[i] + levels[i + 1]) / 2;
      next[i] = (phi(low) - phi(high)) / (upper_tail(low) - upper_tail(high));
      moved = std::max(moved, std::fabs(next[i] - levels[i]));
    }
    levels = next;
  }
  return gaussian_mse(levels);
}

template <int bits>
void check_codebook(double published_mse, double allowed_excess) {
  constexpr int kCount = 1 << bits;
  std::vector<double> levels;
  for (int c = 0; c < kCount; ++c) {
    EXPECT_EQ(tq::kLevels<bits>[c], -tq::kLevels<bits>[kCount - 1 - c]) << bits << " bits, code " << c;
    if (c > 0) {
      EXPECT_LT(tq::kLevels<bits>[c - 1], tq::kLevels<bits>[c]) << bits << " bits, code " << c;
    }
    levels.push_back(tq::kLevels<bits>[c] / static_cast<double>(tq::kSigma<bits>));
  }
  const double best = lloyd_max_mse(bits);
  const double mse = gaussian_mse(levels);
  EXPECT_NEAR(best, published_mse, 1e-7) << bits << " bits";
  EXPECT_GE(mse, best) << bits << " bits";
  EXPECT_LE(mse, best * (1 + allowed_excess)) << bits << " bits";
}

TEST(Codebook, AntisymmetricAndNearLloydMax) {
  check_codebook<2>(.1174818, 1e-5);
  check_codebook<3>(.0345478, 1e-4);
  check_codebook<4>(.0095010, .001);
  check_codebook<5>(.0025047, .006);
  check_codebook<6>(.0006442, .0195);  // the best that 64 distinct int8 values allow
}

struct Errors {
  double mse = 0, cosine = 0;
};

template <typename Info>
Errors gaussian_errors(const Info& codec, int head_dim, const EncodeOptions& options) {
  constexpr int kTiles = 40;
  Errors sum;
  for (int i = 0; i < kTiles; ++i) {
    const auto rows = gaussian(tile_floats(head_dim), static_cast<uint32_t>(1000 + i));
    const auto back = round_trip(codec, head_dim, rows, options);
    const size_t n = static_cast<size_t>(head_dim);
    for (size_t t = 0; t < kTileTokens; ++t) {
      const float* x = rows.data() + t * n;
      const float* y = back.data() + t * n;
      sum.mse += relative_mse(x, y, n);
      sum.cosine += dot(x, y, n) / std::sqrt(energy(x, n) * energy(y, n));
    }
  }
  const double rows = kTiles * kTileTokens;
  return {sum.mse / rows, sum.cosine / rows};
}

constexpr EncodeOptions kMatched{.inner_product_norm = false};
constexpr EncodeOptions kInnerProduct{.inner_product_norm = true};

TEST(TqError, ThreeBitKeysByHeadDimAndNormCorrection) {
  struct Row {
    int head_dim;
    double matched, inner_product;
  };
  for (const Row& row : {Row{64, .0327, .0336}, Row{128, .0338, .0348}, Row{256, .0344, .0353}}) {
    const KCodecInfo& k3 = k_codec(KCodec::kTq3);
    const Errors matched = gaussian_errors(k3, row.head_dim, kMatched);
    const Errors inner = gaussian_errors(k3, row.head_dim, kInnerProduct);
    EXPECT_NEAR(matched.mse, row.matched, 2e-4) << row.head_dim;
    EXPECT_NEAR(inner.mse, row.inner_product, 2e-4) << row.head_dim;
    EXPECT_NEAR(matched.cosine, .983, .001) << row.head_dim;
  }
}

TEST(TqError, OtherWidths) {
  EXPECT_NEAR(gaussian_errors(k_codec(KCodec::kTq4), 128, kMatched).mse, .0093, 2e-4);
  EXPECT_LT(gaussian_errors(k_codec(KCodec::kTq5), 128, kMatched).mse, .0026);
  EXPECT_LT(gaussian_errors(k_codec(KCodec::kTq6), 128, kMatched).mse, .0007);
  EXPECT_NEAR(gaussian_errors(k_codec(KCodec::kTq2), 128, kMatched).mse, .117, .005);
}

TEST(TqError, ThreeBitValuesByLeastSquares) {
  EXPECT_NEAR(gaussian_errors(v_codec(VCodec::kTq3), 128, {}).mse, .0330, 3e-4);
}

}  // namespace
}  // namespace varve::format
