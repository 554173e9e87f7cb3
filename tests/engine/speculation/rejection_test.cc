// The rejection sampler against the distribution that it must give, whatever drew the drafts.

#include "engine/speculation/rejection.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/chi_square.h"

namespace varve::engine {
namespace {

using Distribution = std::vector<model::TokenProbability>;
using testing::chi_square_limit;

class Uniform {
 public:
  explicit Uniform(uint64_t seed) : random_(seed) {}
  double operator()() { return double(random_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 random_;
};

/// Some of the tokens 0 .. n - 1, with weights over several orders of magnitude.
Distribution random_distribution(int n, std::mt19937_64& random) {
  Distribution out;
  float sum = 0;
  for (int t = 0; t < n; ++t) {
    if (random() % 4 == 0) continue;
    const float w = std::exp(float(random() % 1000) / 1000 * 6);
    out.push_back({t, w});
    sum += w;
  }
  if (out.empty()) out.push_back({0, sum = 1});
  for (auto& entry : out) entry.probability /= sum;
  return out;
}

double statistic(const std::map<int32_t, int>& counts, const Distribution& p, int draws) {
  double chi = 0;
  int seen = 0;
  for (const auto& [token, probability] : p) {
    const auto it = counts.find(token);
    const double got = it == counts.end() ? 0 : it->second, expected = double(probability) * draws;
    chi += (got - expected) * (got - expected) / expected;
    seen += int(got);
  }
  EXPECT_EQ(seen, draws) << "a token that cannot occur was emitted";
  return chi;
}

TEST(Rejection, WhatComesOutIsDistributedAsTheTarget) {
  std::mt19937_64 random(7);
  Uniform uniform(8);
  constexpr int kDraws = 20000;
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    const Distribution p = random_distribution(8, random), q = random_distribution(8, random);
    std::map<int32_t, int> counts;
    for (int d = 0; d < kDraws; ++d) {
      const int32_t draft = draw(q, uniform());
      const double accept = uniform();
      ++counts[judge(p, q, draft, accept, uniform()).token];
    }
    EXPECT_LT(statistic(counts, p, kDraws), chi_square_limit(int(p.size()) - 1));
  }
}

TEST(Rejection, SoItIsForADraftThatWasChosen) {
  std::mt19937_64 random(17);
  Uniform uniform(18);
  constexpr int kDraws = 20000;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Distribution p = random_distribution(6, random);
    const int32_t draft = int32_t(random() % 6);
    std::map<int32_t, int> counts;
    int accepted = 0;
    for (int d = 0; d < kDraws; ++d) {
      const double accept = uniform();
      const Verdict verdict = judge(p, Distribution{{draft, 1.0f}}, draft, accept, uniform());
      EXPECT_EQ(verdict.accepted, verdict.token == draft);
      accepted += verdict.accepted;
      ++counts[verdict.token];
    }
    EXPECT_LT(statistic(counts, p, kDraws), chi_square_limit(int(p.size()) - 1));
    EXPECT_EQ(accepted, counts[draft]);
  }
}

/// The test can fail: accepting what the draft model likes is not lossless.
TEST(Rejection, ADraftThatIsAlwaysAcceptedFailsTheSameTest) {
  std::mt19937_64 random(27);
  Uniform uniform(28);
  const Distribution p = random_distribution(8, random), q = random_distribution(8, random);
  std::map<int32_t, int> counts;
  for (int d = 0; d < 20000; ++d) ++counts[draw(p, uniform()) % 2 == 0 ? draw(q, uniform()) : draw(p, uniform())];
  double chi = 0;
  for (const auto& [token, probability] : p) {
    const double expected = double(probability) * 20000;
    chi += (counts[token] - expected) * (counts[token] - expected) / expected;
  }
  EXPECT_GT(chi, chi_square_limit(int(p.size()) - 1));
}

TEST(Rejection, AcceptanceIsTheOverlap) {
  Uniform uniform(3);
  const Distribution p = {{1, 0.5f}, {2, 0.3f}, {5, 0.2f}}, q = {{1, 0.2f}, {2, 0.6f}, {7, 0.2f}};
  int accepted = 0;
  constexpr int kDraws = 40000;
  for (int d = 0; d < kDraws; ++d) {
    const int32_t draft = draw(q, uniform());
    const double accept = uniform();
    accepted += judge(p, q, draft, accept, uniform()).accepted;
  }
  EXPECT_NEAR(accepted / double(kDraws), 0.2 + 0.3, 0.02);
}

TEST(Rejection, Edges) {
  const Distribution p = {{1, 0.5f}, {2, 0.5f}};
  EXPECT_TRUE(judge(p, p, 1, 0.999999, 0).accepted) << "equal distributions never reject";
  EXPECT_FALSE(judge(p, Distribution{{3, 1.0f}}, 3, 0, 0).accepted) << "what cannot occur is rejected at u = 0";
  EXPECT_EQ(judge(p, Distribution{{3, 1.0f}}, 3, 0, 0.75).token, 2);
  EXPECT_EQ(judge(Distribution{{4, 1.0f}}, Distribution{{3, 1.0f}}, 3, 0.5, 0.999999).token, 4);
  // Rounding: q is above p where the draft is and nowhere below it.
  EXPECT_EQ(judge(Distribution{{1, 0.99f}}, Distribution{{1, 1.0f}}, 1, 0.995, 0.5).token, 1);
  EXPECT_EQ(draw(p, 0), 1);
  EXPECT_EQ(draw(p, 0.4999), 1);
  EXPECT_EQ(draw(p, 0.5), 2);
  EXPECT_EQ(draw(p, 1 - 0x1p-53), 2);
  EXPECT_EQ(draw(Distribution{{1, 0.0f}, {2, 3.0f}, {3, 0.0f}}, 1 - 0x1p-53), 2) << "a token of no weight is not drawn";
  EXPECT_EQ(draw(Distribution{{1, 0.0f}, {2, 3.0f}}, 0), 2);
}

}  // namespace
}  // namespace varve::engine
