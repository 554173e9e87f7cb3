#include "format/rotation.h"

#include <gtest/gtest.h>

#include "format/hadamard.h"
#include "support.h"

namespace varve::format {
namespace {

using namespace test;

Rotation make(int head_dim, uint64_t seed = 7) {
  auto r = Rotation::create(head_dim, seed);
  EXPECT_TRUE(r.ok()) << r.status().message();
  return *r;
}

TEST(Rotation, CoresAreSymmetricHadamardMatrices) {
  const auto check = [](const auto& h) {
    const size_t n = h.size();
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        EXPECT_EQ(h[i][j], h[j][i]);
        EXPECT_EQ(std::abs(h[i][j]), 1);
        int product = 0;
        for (size_t k = 0; k < n; ++k) product += h[i][k] * h[j][k];
        EXPECT_EQ(product, i == j ? static_cast<int>(n) : 0) << i << "," << j;
      }
    }
  };
  check(kHadamard12);
  check(kHadamard20);
}

TEST(Rotation, OrthonormalForEveryHeadDim) {
  for (const int head_dim : kHeadDims) {
    const Rotation r = make(head_dim);
    const size_t n = static_cast<size_t>(head_dim);
    std::vector<float> columns(n * n, 0.0f);  // row i is R.e_i
    for (size_t i = 0; i < n; ++i) columns[i * n + i] = 1.0f;
    r.forward(columns.data(), head_dim);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const double product = dot(columns.data() + i * n, columns.data() + j * n, n);
        ASSERT_NEAR(product, i == j ? 1.0 : 0.0, 2e-6) << "head_dim " << head_dim << " at " << i << "," << j;
        ASSERT_NEAR(std::fabs(columns[i * n + j]), 1 / std::sqrt(static_cast<double>(n)), 1e-7);
      }
    }
  }
}

TEST(Rotation, InverseUndoesForward) {
  for (const int head_dim : kHeadDims) {
    const Rotation r = make(head_dim);
    const auto rows = gaussian(tile_floats(head_dim), 3, 10.0f);
    auto turned = rows;
    r.forward(turned.data(), kTileTokens);
    EXPECT_GT(relative_mse(rows.data(), turned.data(), rows.size()), 0.5);
    r.inverse(turned.data(), kTileTokens);
    EXPECT_LT(relative_mse(rows.data(), turned.data(), rows.size()), 1e-12) << head_dim;
  }
}

TEST(Rotation, SignsDependOnSeedAndHeadDimAlone) {
  const auto bits = [](const Rotation& r) {
    uint64_t word = 0;
    for (int d = 0; d < 64; ++d) word |= static_cast<uint64_t>(r.signs()[d] < 0) << d;
    return word;
  };
  EXPECT_EQ(bits(make(64, 7)), bits(make(64, 7)));
  EXPECT_NE(bits(make(64, 7)), bits(make(64, 8)));
  EXPECT_NE(bits(make(64, 7)), bits(make(128, 7)));
  // Stored pages depend on this stream: changing it needs a new codec version.
  EXPECT_EQ(bits(make(64, 7)), 0xa10bc74b3051901eu);
}

TEST(Rotation, RefusesOtherHeadDims) {
  for (const int head_dim : {-64, 0, 1, 32, 63, 100, 112, 512}) {
    const auto r = Rotation::create(head_dim, 7);
    ASSERT_FALSE(r.ok()) << head_dim;
    EXPECT_EQ(r.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(r.status().message().find(std::to_string(head_dim)), std::string::npos) << r.status().message();
  }
}

}  // namespace
}  // namespace varve::format
