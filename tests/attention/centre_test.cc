// The fast centre arithmetic against format/plane.h and against the turned vector itself.

#include "attention/centre.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "support.h"

namespace varve::attention::test {
namespace {

struct Shape {
  int head_dim, n_rot;
  bool neox;
};
constexpr Shape kShapes[] = {{64, 64, true}, {64, 64, false}, {80, 40, true}, {128, 64, false}, {256, 256, true}};

format::RotaryTable table_of(const Shape& shape, double base) {
  std::vector<float> theta;
  for (int p = 0; p < shape.n_rot / 2; ++p) {
    theta.push_back(static_cast<float>(std::pow(base, -2.0 * p / shape.n_rot)));
  }
  return {theta, shape.head_dim, shape.neox};
}

std::vector<float> random_row(std::mt19937& random, size_t n, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> row(n);
  for (float& x : row) x = normal(random);
  return row;
}

TEST(Centre, AddCentreHasTheBitsOfTheReference) {
  std::mt19937 random(1);
  for (const Shape& shape : kShapes) {
    const auto dim = static_cast<size_t>(shape.head_dim);
    const format::RotaryTable rotary = table_of(shape, 1e4);
    const format::HeadGeometry head{shape.head_dim, nullptr, &rotary};
    std::vector<half_t> plane(align_up(dim, 32));
    std::vector<float> u = random_row(random, dim, 100);
    for (size_t d = 0; d < dim; ++d) {
      plane[d] = float_to_half(u[d]);
      u[d] = half_to_float(plane[d]);
    }
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      for (const int tile : {0, 3, 27}) {
        for (const float sign : {-1.0f, 1.0f}) {
          std::vector<float> want = random_row(random, dim * kTileTokens, 1), got = want, tile_centre = u;
          format::add_centre({KCodec::kInt8, VCodec::kInt8, centre}, head, tile, sign,
                             reinterpret_cast<const uint8_t*>(plane.data()), want.data());
          if (centre == Centre::kRotary) rotary.turn(tile_centre.data(), tile * kTileTokens);
          add_centre(centre, &rotary, tile_centre.data(), shape.head_dim, sign, got.data());
          EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
              << "dim " << dim << " tile " << tile << " centre " << format::centre_name(centre);
        }
      }
    }
  }
}

// Fixes the signs of a and b: q.R(o)u computed from the turned vector. And the promise that the curve is exact to 1e-4
// of the scores' scale, with room to spare.
TEST(Centre, CurveIsTheDotWithTheTurnedCentre) {
  std::mt19937 random(2);
  constexpr int kTiles = 28, kGroup = 3;  // a page of 1792
  for (const kernels::Kernels* kernels : kernels::available()) {
    for (const double base : {1e4, 1e6}) {
      for (const Shape& shape : kShapes) {
        const auto dim = static_cast<size_t>(shape.head_dim);
        const format::RotaryTable rotary = table_of(shape, base);
        const CentreCurve curve(rotary, kTiles);
        const auto terms = static_cast<size_t>(curve.terms());
        const std::vector<float> q = random_row(random, kGroup * dim, 1), u = random_row(random, dim, 100);
        std::vector<float> page(kGroup * terms);
        for (size_t g = 0; g < kGroup; ++g) {
          curve.page_terms(*kernels, q.data() + g * dim, u.data(), page.data() + g * terms);
        }
        double largest = 0, scale = 0;
        for (int tile = 0; tile < kTiles; tile += 3) {
          std::vector<float> scores(kGroup * kTileTokens, 1.0f), turned(dim);
          curve.add_to_scores(*kernels, kGroup, page.data(), tile, scores.data());
          curve.turn(u.data(), tile, turned.data());
          for (int t = 0; t < kTileTokens; ++t) {
            std::vector<float> exact = u;
            rotary.turn(exact.data(), tile * kTileTokens + t);
            for (size_t d = 0; t == 0 && d < dim; ++d) EXPECT_NEAR(turned[d], exact[d], 1e-4);
            for (size_t g = 0; g < kGroup; ++g) {
              double want = 1;
              for (size_t d = 0; d < dim; ++d) {
                want += static_cast<double>(q[g * dim + d]) * static_cast<double>(exact[d]);
              }
              const double got = static_cast<double>(scores[g * kTileTokens + static_cast<size_t>(t)]);
              largest = std::max(largest, std::fabs(got - want));
              scale = std::max(scale, std::fabs(want));
            }
          }
        }
        EXPECT_LE(largest, 2e-6 * scale) << kernels->name << " dim " << dim << " base " << base << " neox "
                                         << shape.neox;
      }
    }
  }
}

}  // namespace
}  // namespace varve::attention::test
