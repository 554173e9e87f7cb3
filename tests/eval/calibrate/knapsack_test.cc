#include "eval/calibrate/knapsack.h"

#include <gtest/gtest.h>

#include <random>

namespace varve::eval {
namespace {

using Items = std::vector<std::vector<KnapsackOption>>;

Items random_items(uint32_t seed) {
  std::mt19937 random(seed);
  Items items(1 + random() % 6);
  for (auto& options : items) {
    options.resize(1 + random() % 4);
    for (auto& o : options) o = {.bytes = int64_t(random() % 20), .cost = double(random() % 1000) / 7};
  }
  return items;
}

/// Every choice there is.
std::vector<KnapsackPoint> all_choices(const Items& items) {
  std::vector<KnapsackPoint> out{{}};
  for (const auto& options : items) {
    std::vector<KnapsackPoint> longer;
    for (const KnapsackPoint& p : out) {
      for (size_t o = 0; o < options.size(); ++o) {
        KnapsackPoint q = p;
        q.bytes += options[o].bytes;
        q.cost += options[o].cost;
        q.choice.push_back(int(o));
        longer.push_back(std::move(q));
      }
    }
    out = std::move(longer);
  }
  return out;
}

TEST(Knapsack, AgreesWithBruteForce) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Items items = random_items(seed);
    const KnapsackFront front(items);
    const auto choices = all_choices(items);
    for (int64_t budget = 0; budget <= 120; budget += 3) {
      double best = 1e300;
      for (const auto& c : choices) {
        if (c.bytes <= budget) best = std::min(best, c.cost);
      }
      const auto found = front.within_bytes(budget);
      ASSERT_EQ(found.has_value(), best < 1e300);
      if (!found) continue;
      EXPECT_NEAR(found->cost, best, 1e-9);
      EXPECT_LE(found->bytes, budget);
    }
    for (double limit = 0; limit <= 900; limit += 30) {
      int64_t best = INT64_MAX;
      for (const auto& c : choices) {
        if (c.cost <= limit) best = std::min(best, c.bytes);
      }
      const auto found = front.within_cost(limit);
      ASSERT_EQ(found.has_value(), best < INT64_MAX);
      if (found) {
        EXPECT_EQ(found->bytes, best);
      }
    }
  }
}

TEST(Knapsack, AChoiceAddsUpToItsPoint) {
  const Items items = random_items(17);
  const KnapsackFront front(items);
  for (const KnapsackPoint& p : {front.smallest(), front.largest(), *front.within_bytes(front.smallest().bytes + 10)}) {
    ASSERT_EQ(p.choice.size(), items.size());
    int64_t bytes = 0;
    double cost = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      bytes += items[i][size_t(p.choice[i])].bytes;
      cost += items[i][size_t(p.choice[i])].cost;
    }
    EXPECT_EQ(bytes, p.bytes);
    EXPECT_NEAR(cost, p.cost, 1e-9);
  }
}

TEST(Knapsack, AnItemWithoutOptionsLeavesNothing) {
  const Items items = {{{1, 1.0}}, {}, {{1, 1.0}}};
  const KnapsackFront front(items);
  EXPECT_TRUE(front.empty());
  EXPECT_FALSE(front.within_bytes(100));
  EXPECT_FALSE(front.within_cost(100));
}

}  // namespace
}  // namespace varve::eval
