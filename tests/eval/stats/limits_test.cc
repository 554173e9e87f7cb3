#include "eval/stats/limits.h"

#include <gtest/gtest.h>

namespace varve::eval {
namespace {

TEST(Limits, NoLossInNBoundsTheRate) {
  EXPECT_NEAR(100 * zero_loss_bound(12), 22.1, 0.05);
  EXPECT_NEAR(100 * zero_loss_bound(24), 11.7, 0.05);
  EXPECT_NEAR(100 * zero_loss_bound(96), 3.1, 0.05);
  EXPECT_NEAR(100 * zero_loss_bound(256), 1.16, 0.005);
  EXPECT_NEAR(100 * zero_loss_bound(2400), 0.12, 0.005);
  EXPECT_DOUBLE_EQ(zero_loss_bound(1), 0.95);
  EXPECT_EQ(zero_loss_bound(0), 1);
}

TEST(Limits, PairsForAMargin) {
  // (1.644854 + 0.841621)^2 * 0.01 / 0.01^2 = 618.26
  EXPECT_EQ(pairs_for_margin(0.01, 0.01), 619);
  EXPECT_EQ(pairs_for_margin(0.1, 0.01), 7);
  EXPECT_EQ(pairs_for_margin(0.01, 0), 1);
}

TEST(Limits, LossesToDetect) {
  EXPECT_EQ(losses_to_detect(), 6);
  EXPECT_EQ(losses_to_detect(0.9), 5);
}

TEST(Limits, SentencesCarryTheNumbers) {
  EXPECT_EQ(what_n_shows(0, 0, 0), "No pair was compared: nothing is shown.");
  EXPECT_EQ(
      what_n_shows(96, 0, 0),
      "Of 96 pairs, no losses and no wins: the true loss rate is below 3.1 % (95 %). A margin of 1.0 % would need "
      "about 299 pairs.");
  EXPECT_EQ(what_n_shows(400, 0, 0), "Of 400 pairs, no losses and no wins: the true loss rate is below 0.75 % (95 %).");
  EXPECT_EQ(what_n_shows(32, 1, 1),
            "Of 32 pairs, 1 loss and 1 win: no difference is shown, which does not show that there is none (exact "
            "McNemar p = 1). A margin of 1.0 % would need about 3865 pairs.");
  EXPECT_NE(what_n_shows(32, 2, 12).find("the arm is worse (exact McNemar p = 0.013)"), std::string::npos);
  EXPECT_NE(what_n_shows(32, 12, 2).find("the arm is better"), std::string::npos);
  EXPECT_NE(what_n_shows(4, 0, 0).find("No outcome of fewer than 6 pairs can show a loss."), std::string::npos);
}

}  // namespace
}  // namespace varve::eval
