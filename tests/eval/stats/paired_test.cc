#include "eval/stats/paired.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve::eval {
namespace {

TEST(Paired, CountsFourCellsAndTheDifference) {
  const std::vector<double> reference = {1, 1, 0, 0, 1, 0.4}, arm = {1, 0, 1, 0, 0, 0.5};
  const PairedCounts counts = count_pairs(reference, arm);
  EXPECT_EQ(counts.both_right, 1);
  EXPECT_EQ(counts.wins, 2);
  EXPECT_EQ(counts.losses, 2);
  EXPECT_EQ(counts.both_wrong, 1);
  EXPECT_EQ(counts.n(), 6);
  EXPECT_EQ(counts.delta(), 0);
  EXPECT_DOUBLE_EQ((PairedCounts{5, 1, 3, 1}.delta()), -0.2);
  EXPECT_EQ(PairedCounts{}.delta(), 0);
}

TEST(Paired, McNemarIsTwiceTheBinomialTail) {
  EXPECT_EQ(mcnemar_exact(0, 0), 1);
  EXPECT_EQ(mcnemar_exact(10, 10), 1);
  EXPECT_NEAR(mcnemar_exact(0, 5), 2.0 / 32, 1e-15);
  EXPECT_NEAR(mcnemar_exact(0, 6), 2.0 / 64, 1e-15);
  EXPECT_NEAR(mcnemar_exact(1, 7), 2 * (1.0 + 8) / 256, 1e-14);
  EXPECT_NEAR(mcnemar_exact(7, 1), mcnemar_exact(1, 7), 1e-15);
  EXPECT_NEAR(mcnemar_exact(2, 12), 2 * (1.0 + 14 + 91) / 16384, 1e-14);
  EXPECT_NEAR(mcnemar_exact(600, 700), 0.0060157938610449525, 1e-12);  // exact sum of integers
}

TEST(Paired, WilsonOfTheExtremesAndTheMiddle) {
  const Interval none = wilson(0, 12), most = wilson(47, 48), all = wilson(12, 12), unknown = wilson(0, 0);
  EXPECT_EQ(none.lo, 0);
  EXPECT_NEAR(none.hi, 0.24249, 1e-5);  // z^2 / (n + z^2)
  EXPECT_NEAR(most.lo, 0.89101, 1e-5);
  EXPECT_NEAR(most.hi, 0.99631, 1e-5);
  EXPECT_EQ(all.hi, 1);
  EXPECT_NEAR(all.lo, 1 - none.hi, 1e-12);
  EXPECT_EQ(unknown.lo, 0);
  EXPECT_EQ(unknown.hi, 1);
}

TEST(Paired, NewcombeAsPublished) {
  // Newcombe 1998, the example 36, 12, 2, 0 (method 10).
  const Interval newcombe = newcombe_paired({36, 12, 2, 0});
  EXPECT_NEAR(newcombe.lo, 0.0569, 5e-5);
  EXPECT_NEAR(newcombe.hi, 0.3404, 5e-5);
  // Fagerland, Lydersen and Laake 2014, airway hyper-responsiveness: -0.286 (-0.507 to -0.026).
  const PairedCounts airway = {1, 1, 7, 12};
  EXPECT_NEAR(airway.delta(), -0.286, 5e-4);
  EXPECT_NEAR(newcombe_paired(airway).lo, -0.507, 5e-4);
  EXPECT_NEAR(newcombe_paired(airway).hi, -0.026, 5e-4);
}

TEST(Paired, NewcombeWithoutPairsOrDiscordance) {
  EXPECT_EQ(newcombe_paired({}).lo, -1);
  EXPECT_EQ(newcombe_paired({}).hi, 1);
  const Interval same = newcombe_paired({30, 0, 0, 2});
  EXPECT_NEAR(same.lo, -0.11020, 1e-5);
  EXPECT_NEAR(same.hi, 0.11020, 1e-5);
  const Interval swapped = newcombe_paired({88, 3, 0, 5}), given = newcombe_paired({88, 0, 3, 5});
  EXPECT_NEAR(swapped.lo, -given.hi, 1e-12);
  EXPECT_NEAR(swapped.hi, -given.lo, 1e-12);
  EXPECT_NEAR(given.lo, -0.08751, 1e-5);
}

}  // namespace
}  // namespace varve::eval
