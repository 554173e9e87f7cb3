#include "base/half.h"
#include "support.h"

namespace varve::kernels::testing {
namespace {

class Dense : public EveryTable {};

TEST_P(Dense, ExpSumWithinTheStatedError) {
  for (const int n : {1, 2, 7, 8, 9, 15, 16, 17, 64, 100, 1792}) {
    const float max = 3.0f;
    std::mt19937 random(73);
    std::uniform_real_distribution<float> uniform(-90.0f, 0.0f);
    Guarded<float> scores(static_cast<size_t>(n));
    for (float& s : scores) s = max + uniform(random);
    scores[0] = max;
    if (n > 3) scores[3] = -kInfinity;
    std::vector<float> before(scores.begin(), scores.end());
    const float sum = kernels().exp_sum(scores.data(), n, max);
    double expected_sum = 0;
    for (int t = 0; t < n; ++t) {
      const double x = double{before[static_cast<size_t>(t)] - max};
      const double expected = x < -87.33 ? 0 : std::exp(x);
      const double got = scores[static_cast<size_t>(t)];
      EXPECT_NEAR(got, expected, 2e-7 * expected + 1.3e-38) << "x " << x;
      expected_sum += expected;
    }
    EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum) << "n " << n;
    EXPECT_TRUE(scores.intact());
  }
}

TEST_P(Dense, ExpSumErrorOverTheWholeRange) {
  double worst = 0;
  for (float x = -87.3f; x <= 80.0f; x += 1.7e-4f) {
    float y = x;
    kernels().exp_sum(&y, 1, 0.0f);
    const double expected = std::exp(double{x});
    worst = std::max(worst, std::abs(y - expected) / expected);
  }
  EXPECT_LE(worst, 2e-7);
}

TEST_P(Dense, TransposeMovesEveryElementAndNothingElse) {
  for (const int rows : {1, 3, 4, 5, 16, 17}) {
    for (const int columns : {1, 4, 7, 32, 33}) {
      const int from_stride = columns + 3, to_stride = rows + 2;
      std::vector<float> from(static_cast<size_t>(rows * from_stride));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      Guarded<float> to(static_cast<size_t>(columns * to_stride), -1.0f);
      kernels().transpose(rows, columns, from.data(), from_stride, to.data(), to_stride);
      for (int c = 0; c < columns; ++c) {
        for (int r = 0; r < to_stride; ++r) {
          const float expected = r < rows ? from[static_cast<size_t>(r * from_stride + c)] : -1.0f;
          ASSERT_EQ(to[static_cast<size_t>(c * to_stride + r)], expected) << r << ", " << c;
        }
      }
      EXPECT_TRUE(to.intact());
    }
  }
}

TEST_P(Dense, ExpSumOfSpecialValues) {
  Guarded<float> scores(20, 0.0f);
  scores[1] = kNan;
  scores[2] = kInfinity;
  scores[3] = -kInfinity;
  scores[4] = -1e30f;
  scores[5] = -87.0f;
  scores[6] = 100.0f;
  scores[17] = kNan;
  const float sum = kernels().exp_sum(scores.data(), 20, 0.0f);
  EXPECT_TRUE(std::isnan(sum));
  EXPECT_EQ(scores[0], 1.0f);
  EXPECT_TRUE(std::isnan(scores[1]));
  EXPECT_EQ(scores[2], kInfinity);
  EXPECT_EQ(scores[3], 0.0f);
  EXPECT_EQ(scores[4], 0.0f);
  EXPECT_GT(scores[5], 0.0f);
  EXPECT_EQ(scores[6], kInfinity);
  EXPECT_TRUE(std::isnan(scores[17]));
  EXPECT_TRUE(scores.intact());
}

TEST_P(Dense, MaxIgnoresNan) {
  EXPECT_EQ(kernels().max(nullptr, 0), -kInfinity);
  for (int n = 1; n < 70; ++n) {
    std::vector<float> x = gaussian(static_cast<size_t>(n), static_cast<unsigned>(n));
    EXPECT_EQ(kernels().max(x.data(), n), *std::max_element(x.begin(), x.end()));
    for (int i = 0; i < n; i += 3) x[static_cast<size_t>(i)] = kNan;
    float expected = -kInfinity;
    for (const float v : x) expected = v > expected ? v : expected;
    EXPECT_EQ(kernels().max(x.data(), n), expected) << n;
    std::fill(x.begin(), x.end(), -kInfinity);
    EXPECT_EQ(kernels().max(x.data(), n), -kInfinity);
  }
}

struct GemmShape {
  int m, n, k;
};

TEST_P(Dense, Gemm) {
  const GemmShape shapes[] = {{1, 64, 64},  {2, 64, 80},   {5, 96, 64},    {6, 128, 64},  {7, 64, 256},  {8, 256, 64},
                              {12, 80, 64}, {13, 192, 64}, {16, 64, 128},  {37, 64, 192}, {64, 64, 256}, {100, 256, 64},
                              {3, 1, 5},    {14, 13, 7},   {300, 64, 256}, {17, 70, 300}, {20, 64, 600}, {4, 9, 0}};
  for (const auto [m, n, k] : shapes) {
    for (const bool accumulate : {false, true}) {
      const int lda = k + 3, ldb = n + 5, ldc = n + 2;
      const auto a = gaussian(static_cast<size_t>(m * lda), 7), b = gaussian(static_cast<size_t>((k + 1) * ldb), 8);
      Guarded<float> c(static_cast<size_t>(m * ldc), 0.75f);
      kernels().gemm(m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, accumulate);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < ldc; ++j) {
          double expected = accumulate || j >= n ? 0.75 : 0;
          for (int l = 0; l < k && j < n; ++l) {
            expected += double{a[static_cast<size_t>(i * lda + l)]} * b[static_cast<size_t>(l * ldb + j)];
          }
          ASSERT_NEAR(c[static_cast<size_t>(i * ldc + j)], expected, 4e-6 * std::sqrt(k + 1.0))
              << m << "x" << n << "x" << k << " at " << i << ", " << j << " accumulate " << accumulate;
        }
      }
      EXPECT_TRUE(c.intact());
    }
  }
}

TEST_P(Dense, EveryHalfConverts) {
  std::vector<uint16_t> halves(65536 + 5);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  Guarded<float> floats(halves.size());
  Guarded<uint16_t> back(halves.size());
  kernels().f16_to_f32(halves.data(), floats.data(), halves.size());
  kernels().f32_to_f16(floats.data(), back.data(), halves.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = half_to_float(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(floats[i]) && std::isnan(half_to_float(back[i]))) << i;
      continue;
    }
    ASSERT_EQ(floats[i], expected) << i;
    ASSERT_EQ(back[i], halves[i]) << i;
  }
  EXPECT_TRUE(floats.intact() && back.intact());
}

TEST_P(Dense, FloatsRoundToHalvesAsInScalarCode) {
  std::mt19937 random(79);
  for (const size_t n : {1u, 7u, 8u, 31u, 100000u}) {
    std::vector<float> floats(n);
    for (float& f : floats) {
      // Exponents around f16's range, and mantissas that are often exactly half way.
      const uint32_t bits = (random() & 0x80000000u) | ((95 + random() % 50) << 23) | (random() & 0x7fffffu);
      f = std::bit_cast<float>(random() % 2 ? bits : bits & ~0xfffu);
    }
    Guarded<uint16_t> halves(n);
    kernels().f32_to_f16(floats.data(), halves.data(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(halves[i], float_to_half(floats[i])) << floats[i];
    EXPECT_TRUE(halves.intact());
  }
}

VARVE_EVERY_TABLE(Dense);

}  // namespace
}  // namespace varve::kernels::testing
