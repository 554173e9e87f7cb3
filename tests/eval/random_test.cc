#include "eval/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace varve::eval {
namespace {

TEST(Random, IsSplitMix64) {
  // The first outputs of the published generator for seed 1234567.
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, NamesAndSeedsHaveStreamsOfTheirOwn) {
  EXPECT_EQ(Random::named(1, "a").next(), Random::named(1, "a").next());
  EXPECT_NE(Random::named(1, "a").next(), Random::named(1, "b").next());
  EXPECT_NE(Random::named(1, "a").next(), Random::named(2, "a").next());
}

TEST(Random, BelowReachesEveryValueAboutEquallyOften) {
  Random random(5);
  int seen[7] = {};
  for (int i = 0; i < 7000; ++i) ++seen[random.below(7)];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
  for (int i = 0; i < 100; ++i) {
    const int64_t x = random.between(-2, 2);
    EXPECT_GE(x, -2);
    EXPECT_LE(x, 2);
    const double u = random.unit();
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
  }
}

TEST(Random, SamplesAreDifferentNumbers) {
  Random random(9);
  const std::vector<size_t> drawn = random.sample(40, 40), few = random.sample(1000, 5);
  EXPECT_EQ(std::set<size_t>(drawn.begin(), drawn.end()).size(), 40u);
  EXPECT_EQ(std::set<size_t>(few.begin(), few.end()).size(), 5u);
  EXPECT_LT(*std::max_element(few.begin(), few.end()), 1000u);
}

}  // namespace
}  // namespace varve::eval
