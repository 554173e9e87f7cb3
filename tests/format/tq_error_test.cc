// The rotated scalar codes against closed-form and Monte Carlo values on Gaussian rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numbers>

#include "base/half.h"
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

/// The least error of any antisymmetric set of 2^bits integers within [-127, 127] at `sigma` integer units per standard
/// deviation. The error is a sum over gaps between neighbouring levels, so dynamic programming finds it.
double best_integer_mse(int bits, double sigma) {
  constexpr int kMax = 127;
  // Integrals of phi, x phi, x^2 phi over [x, infinity), at half-integer steps (levels and midpoints).
  std::vector<double> m0, m1, m2;
  for (int i = 0; i <= 2 * kMax; ++i) {
    const double x = i / 2.0 / sigma;
    m0.push_back(upper_tail(x));
    m1.push_back(phi(x));
    m2.push_back(x * phi(x) + upper_tail(x));
  }
  // Error over [a, b] half steps when coded as level c.
  const auto piece = [&](int a, int b, int c) {
    const double level = c / sigma;
    const size_t i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return (m2[i] - m2[j]) - 2 * level * (m1[i] - m1[j]) + level * level * (m0[i] - m0[j]);
  };
  constexpr double kNone = 1e9;
  std::vector<double> cost(kMax + 1, kNone);  // of [0, level], ending at a level
  for (int c = 1; c <= kMax; ++c) cost[static_cast<size_t>(c)] = piece(0, 2 * c, c);
  std::vector<std::vector<double>> gap(kMax + 1, std::vector<double>(kMax + 1));
  for (int a = 1; a <= kMax; ++a) {
    for (int b = a + 1; b <= kMax; ++b) {
      gap[static_cast<size_t>(a)][static_cast<size_t>(b)] = piece(2 * a, a + b, a) + piece(a + b, 2 * b, b);
    }
  }
  for (int level = 1; level < 1 << (bits - 1); ++level) {
    std::vector<double> next(kMax + 1, kNone);
    for (size_t a = 1; a <= kMax; ++a) {
      for (size_t b = a + 1; b <= kMax; ++b) next[b] = std::min(next[b], cost[a] + gap[a][b]);
    }
    cost = next;
  }
  double best = kNone;
  for (size_t c = 1; c <= kMax; ++c) {
    const double level = static_cast<double>(c) / sigma;
    const double tail = m2[2 * c] - 2 * level * m1[2 * c] + level * level * m0[2 * c];
    best = std::min(best, 2 * (cost[c] + tail));
  }
  return best;
}

template <int bits>
void check_search(double low, double high, double step, double allowed) {
  std::vector<double> levels;
  for (const int8_t level : tq::kLevels<bits>) levels.push_back(level / static_cast<double>(tq::kSigma<bits>));
  const double mse = gaussian_mse(levels);
  EXPECT_LE(mse, best_integer_mse(bits, static_cast<double>(tq::kSigma<bits>)) * (1 + allowed)) << bits << " bits";
  for (double sigma = low; sigma < high; sigma += step) {
    EXPECT_LE(mse, best_integer_mse(bits, sigma) * (1 + allowed)) << bits << " bits, sigma " << sigma;
  }
}

TEST(Codebook, NoIntegerSetDoesBetter) {
  check_search<2>(40, 84, 2, 1e-6);
  check_search<3>(30, 59, 1, 4e-5);
  check_search<4>(30, 46, .5, 1e-6);
  check_search<5>(24, 39, .5, 1e-6);
  check_search<6>(20, 36, .25, 1e-6);
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

/// The same codes under the factors that are not stored: sigma of the row itself (raw), and least squares.
TEST(TqError, ThreeBitRawAndLeastSquaresByHeadDim) {
  struct Row {
    int head_dim;
    double raw, least_squares;
  };
  for (const Row& row : {Row{64, .0334, .0325}, Row{128, .0340, .0336}, Row{256, .0343, .0341}}) {
    const size_t n = static_cast<size_t>(row.head_dim);
    const KCodecInfo& k3 = k_codec(KCodec::kTq3);
    std::vector<uint8_t> tile(k3.tile_bytes(row.head_dim));
    std::vector<float> back(tile_floats(row.head_dim));
    double raw = 0, least_squares = 0;
    constexpr int kTiles = 40;
    for (int i = 0; i < kTiles; ++i) {
      const auto rows = gaussian(back.size(), static_cast<uint32_t>(1000 + i));
      k3.encode(rows.data(), row.head_dim, kMatched, tile.data());
      k3.decode(tile.data(), row.head_dim, back.data());
      for (size_t t = 0; t < kTileTokens; ++t) {
        const float* x = rows.data() + t * n;
        float* y = back.data() + t * n;
        half_t norm;
        std::memcpy(&norm, tile.data() + tile.size() - 128 + 2 * t, sizeof(norm));
        const float to_sigma = 128 / half_to_float(norm) / tq::kSigma<3>;  // decoded value -> level in sigmas
        const float sigma = static_cast<float>(std::sqrt(energy(x, n) / static_cast<double>(n)));
        const float fitted = static_cast<float>(dot(x, y, n) / energy(y, n));
        std::vector<float> y_raw(n), y_fitted(n);
        for (size_t d = 0; d < n; ++d) {
          y_raw[d] = y[d] * to_sigma * sigma;
          y_fitted[d] = y[d] * fitted;
        }
        raw += relative_mse(x, y_raw.data(), n) / (kTiles * kTileTokens);
        least_squares += relative_mse(x, y_fitted.data(), n) / (kTiles * kTileTokens);
      }
    }
    EXPECT_NEAR(raw, row.raw, 2e-4) << row.head_dim;
    EXPECT_NEAR(least_squares, row.least_squares, 2e-4) << row.head_dim;
  }
}

TEST(TqError, AOneHotKeyIsExactUnderMatchedNorm) {
  for (const int head_dim : kHeadDims) {
    const Rotation rotation = *Rotation::create(head_dim, 7);
    const size_t n = static_cast<size_t>(head_dim);
    std::vector<float> rows(tile_floats(head_dim), 0.0f);
    for (size_t t = 0; t < kTileTokens; ++t) rows[t * n + (t * 5) % n] = t % 2 == 0 ? 3.0f : -0.7f;
    auto turned = rows;
    rotation.forward(turned.data(), kTileTokens);
    auto back = round_trip(k_codec(KCodec::kTq3), head_dim, turned, kMatched);
    rotation.inverse(back.data(), kTileTokens);
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(back[i], rows[i], 3.0f * 0x1p-10f) << head_dim << " at " << i;
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
