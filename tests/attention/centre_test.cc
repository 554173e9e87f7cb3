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

// Fixes the signs of a and b: q.R(o)u computed from the turned vector.
TEST(Centre, CurveIsTheDotWithTheTurnedCentre) {
  std::mt19937 random(2);
  for (const double base : {1e4, 1e6}) {
    for (const Shape& shape : kShapes) {
      const auto dim = static_cast<size_t>(shape.head_dim);
      const format::RotaryTable rotary = table_of(shape, base);
      constexpr int kTiles = 28;  // a page of 1792
      const CentreCurve curve(rotary, kTiles);
      const std::vector<float> q = random_row(random, dim, 1), u = random_row(random, dim, 100);
      std::vector<float> page(static_cast<size_t>(curve.terms())), terms(page.size()), turned(dim);
      curve.page_coefficients(q.data(), u.data(), page.data());
      double largest = 0, scale = 0;
      for (int tile = 0; tile < kTiles; ++tile) {
        curve.tile_coefficients(page.data(), tile, terms.data());
        curve.turn(u.data(), tile, turned.data());
        for (int t = 0; t < kTileTokens; ++t) {
          std::vector<float> exact = u;
          rotary.turn(exact.data(), tile * kTileTokens + t);
          double want = 0, got = 0;
          for (size_t d = 0; d < dim; ++d) {
            want += static_cast<double>(q[d]) * static_cast<double>(exact[d]);
            if (t == 0) {
              EXPECT_NEAR(turned[d], exact[d], 1e-4);
            }
          }
          for (int i = 0; i < curve.terms(); ++i) {
            got += static_cast<double>(terms[static_cast<size_t>(i)]) *
                   static_cast<double>(curve.basis()[i * kTileTokens + t]);
          }
          largest = std::max(largest, std::fabs(got - want));
          scale = std::max(scale, std::fabs(want));
        }
      }
      EXPECT_LE(largest, 2e-6 * scale) << "dim " << dim << " base " << base << " neox " << shape.neox;
    }
  }
}

}  // namespace
}  // namespace varve::attention::test
