#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve::eval {
namespace {

TEST(Divergence, EqualLogitsGiveZero) {
  const std::vector<float> p = {1.0f, -2.0f, 0.5f};
  const TokenDivergence d = compare_logits(p, p, 1);
  EXPECT_EQ(d.kl, 0.0);
  EXPECT_EQ(d.max_delta, 0.0);
  EXPECT_TRUE(d.same_top);
  EXPECT_EQ(d.nll_p, d.nll_q);
}

TEST(Divergence, MatchesTheDefinitionByHand) {
  // p = (3/4, 1/4), q = (1/4, 3/4): KL = 3/4 ln 3 - 1/4 ln 3 = ln(3) / 2.
  const std::vector<float> p = {std::log(3.0f), 0.0f}, q = {0.0f, std::log(3.0f)};
  const TokenDivergence d = compare_logits(p, q, 0);
  EXPECT_NEAR(d.kl, std::log(3.0) / 2, 1e-7);
  EXPECT_FALSE(d.same_top);
  EXPECT_NEAR(d.nll_p, std::log(4.0 / 3.0), 1e-7);
  EXPECT_NEAR(d.nll_q, std::log(4.0), 1e-7);
  EXPECT_NEAR(d.max_delta, std::log(3.0), 1e-6);
}

TEST(Divergence, ShiftedLogitsAreTheSameDistribution) {
  const std::vector<float> p = {1.0f, 2.0f, 3.0f}, q = {11.0f, 12.0f, 13.0f};
  EXPECT_NEAR(compare_logits(p, q, -1).kl, 0.0, 1e-12);
}

TEST(Divergence, SummaryByHand) {
  std::vector<TokenDivergence> tokens;
  for (int i = 1; i <= 100; ++i) {
    tokens.push_back({.kl = double(i), .max_delta = double(i % 7), .same_top = i % 4 == 0, .nll_p = 1.0, .nll_q = 1.5});
  }
  const DivergenceSummary s = summarize(tokens);
  EXPECT_EQ(s.n, 100);
  EXPECT_DOUBLE_EQ(s.mean, 50.5);
  EXPECT_DOUBLE_EQ(s.median, 50.0);
  EXPECT_DOUBLE_EQ(s.p99, 99.0);
  EXPECT_DOUBLE_EQ(s.max, 100.0);
  EXPECT_DOUBLE_EQ(s.same_top, 0.25);
  EXPECT_DOUBLE_EQ(s.max_delta, 6.0);
  EXPECT_NEAR(s.ppl_ratio, std::exp(0.5), 1e-12);
  EXPECT_NEAR(s.ppl_p, std::exp(1.0), 1e-12);
  EXPECT_EQ(summarize({}).n, 0);
}

}  // namespace
}  // namespace varve::eval
