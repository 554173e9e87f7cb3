#include "eval/stats/mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "eval/random.h"
#include "eval/stats/quantile.h"

namespace varve::eval {
namespace {

TEST(Quantile, MatchesTheTables) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959964, 1e-6);
  EXPECT_NEAR(normal_quantile(0.95), 1.644854, 1e-6);
  EXPECT_NEAR(normal_quantile(0.8), 0.841621, 1e-6);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(student_t_quantile(0.975, 1), 12.7062, 1e-4);  // tan(0.475 pi)
  EXPECT_NEAR(student_t_quantile(0.975, 4), 2.776445, 1e-6);
  EXPECT_NEAR(student_t_quantile(0.95, 10), 1.812461, 1e-6);
  EXPECT_NEAR(student_t_quantile(0.975, 30), 2.042272, 1e-6);
  EXPECT_NEAR(student_t_quantile(0.025, 4), -2.776445, 1e-6);
  EXPECT_NEAR(student_t_quantile(0.975, 1e7), 1.959964, 1e-5);
}

TEST(PairedT, FiveDifferencesByHand) {
  // mean 0.2, s^2 = (0.04 + 0.01 + 0 + 0.01 + 0.04) / 4 = 0.025, half = 2.776445 * sqrt(0.025 / 5) = 0.196324
  const std::vector<double> differences = {0, 0.1, 0.2, 0.3, 0.4};
  const MeanInterval t = paired_t(differences);
  EXPECT_EQ(t.n, 5);
  EXPECT_NEAR(t.mean, 0.2, 1e-15);
  EXPECT_NEAR(t.interval.lo, 0.2 - 0.196324, 1e-6);
  EXPECT_NEAR(t.interval.hi, 0.2 + 0.196324, 1e-6);
}

TEST(PairedT, TooFewObservationsBoundNothing) {
  EXPECT_TRUE(std::isinf(paired_t({}).interval.hi));
  const std::vector<double> one = {0.25};
  EXPECT_EQ(paired_t(one).mean, 0.25);
  EXPECT_EQ(paired_t(one).interval.lo, -INFINITY);
}

TEST(Bootstrap, TwoClustersHaveThreeMeans) {
  // Two clusters of equal size and means 0 and 1: a resample's mean is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4, so the
  // 95 % interval reaches from 0 to 1 and the 40 % interval is 1/2 alone.
  const std::vector<double> differences = {0, 0, 1, 1};
  const std::vector<std::string> groups = {"a", "a", "b", "b"};
  const MeanInterval wide = cluster_bootstrap(differences, groups);
  EXPECT_EQ(wide.n, 4);
  EXPECT_EQ(wide.groups, 2);
  EXPECT_EQ(wide.mean, 0.5);
  EXPECT_EQ(wide.interval.lo, 0);
  EXPECT_EQ(wide.interval.hi, 1);
  const MeanInterval narrow = cluster_bootstrap(differences, groups, {1, 9999, 0.4});
  EXPECT_EQ(narrow.interval.lo, 0.5);
  EXPECT_EQ(narrow.interval.hi, 0.5);
}

TEST(Bootstrap, SizesWeighClusters) {
  const std::vector<double> differences = {1, 0, 0, 0};
  EXPECT_EQ(cluster_bootstrap(differences, std::vector<std::string>{"a", "b", "b", "b"}).mean, 0.25);
}

TEST(Bootstrap, SameSeedSameIntervalInAnyOrder) {
  Random random(3);
  std::vector<std::pair<double, std::string>> items;
  for (int i = 0; i < 200; ++i) items.push_back({random.unit() - 0.5, "group" + std::to_string(i % 23)});
  const auto interval = [&](uint64_t seed) {
    std::vector<double> differences;
    std::vector<std::string> groups;
    for (const auto& [difference, group] : items) differences.push_back(difference), groups.push_back(group);
    return cluster_bootstrap(differences, groups, {seed, 999}).interval;
  };
  const Interval first = interval(7), other = interval(8);
  random.shuffle(items);
  const Interval again = interval(7);
  EXPECT_EQ(first.lo, again.lo);
  EXPECT_EQ(first.hi, again.hi);
  EXPECT_NE(first.lo, other.lo);
}

TEST(Bootstrap, AgreesWithStudentWhereBothHold) {
  Random random(11);
  std::vector<double> differences;
  std::vector<std::string> groups;
  for (int i = 0; i < 400; ++i) {
    differences.push_back(random.unit() + random.unit() + random.unit() - 1.5);
    groups.push_back(std::to_string(i));
  }
  const MeanInterval b = cluster_bootstrap(differences, groups), t = paired_t(differences);
  const double width = t.interval.hi - t.interval.lo;
  EXPECT_NEAR(b.interval.lo, t.interval.lo, 0.05 * width);
  EXPECT_NEAR(b.interval.hi, t.interval.hi, 0.05 * width);
}

TEST(Bootstrap, OneClusterBoundsNothing) {
  const std::vector<double> differences = {0.1, 0.2};
  const MeanInterval one = cluster_bootstrap(differences, std::vector<std::string>{"a", "a"});
  EXPECT_NEAR(one.mean, 0.15, 1e-15);
  EXPECT_TRUE(std::isinf(one.interval.hi));
  EXPECT_EQ(cluster_bootstrap({}, {}).groups, 0);
}

}  // namespace
}  // namespace varve::eval
