#include "eval/calibrate/reference.h"

#include <gtest/gtest.h>

#include <random>

#include "eval/divergence.h"

namespace varve::eval {
namespace {

constexpr size_t kVocabulary = 5000, kPositions = 7;

std::vector<float> random_logits(uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(kVocabulary * kPositions);
  for (float& x : out) x = normal(random);
  return out;
}

TEST(DenseReference, AgreesWithTheExactDivergence) {
  const std::vector<float> p = random_logits(1, 3);
  const DenseReference reference(p, kVocabulary);
  ASSERT_EQ(reference.positions(), kPositions);
  for (const float noise : {0.003f, 0.1f, 1.0f}) {
    std::vector<float> q = random_logits(2, noise);
    for (size_t i = 0; i < q.size(); ++i) q[i] += p[i];
    double kl = 0, same = 0;
    for (size_t r = 0; r < kPositions; ++r) {
      const auto row = [&](const std::vector<float>& x) { return std::span(x).subspan(r * kVocabulary, kVocabulary); };
      const TokenDivergence d = compare_logits(row(p), row(q), -1);
      kl += d.kl / kPositions;
      same += d.same_top / double(kPositions);
    }
    const ArmDivergence found = reference.compare(q);
    EXPECT_NEAR(found.kl, kl, 0.01 * kl + 1e-9) << "noise " << noise;
    EXPECT_DOUBLE_EQ(found.same_top, same);
  }
}

TEST(DenseReference, IsExactlyZeroOnItselfAndQuadraticInSmallNoise) {
  const std::vector<float> p = random_logits(3, 3), direction = random_logits(4, 1);
  const DenseReference reference(p, kVocabulary);
  EXPECT_EQ(reference.compare(p).kl, 0);
  EXPECT_EQ(reference.compare(p).same_top, 1);
  const auto at = [&](float size) {
    std::vector<float> q = p;
    for (size_t i = 0; i < q.size(); ++i) q[i] += size * direction[i];
    return reference.compare(q).kl;
  };
  EXPECT_NEAR(at(2e-3f) / at(1e-3f), 4, 0.02);
}

TEST(DenseReference, AConstantOffsetOfTheLogitsIsNoDivergence) {
  const std::vector<float> p = random_logits(5, 3);
  std::vector<float> q = p;
  for (float& x : q) x += 8;
  EXPECT_LT(DenseReference(p, kVocabulary).compare(q).kl, 1e-12);
}

}  // namespace
}  // namespace varve::eval
