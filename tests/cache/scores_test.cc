// Attention scores and marks: the averages by hand, who is forgotten, when a review follows.

#include "cache/lifecycle/scores.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cache/lifecycle/controller.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::grow;
using testing::make;
using testing::small_config;
using Mass = std::vector<float>;

/// Records what it is shown and leaves every page where it is.
struct Watcher : Policy {
  void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const override {
    seen.assign(pages.begin(), pages.end());
    for (size_t i = 0; i < pages.size(); ++i) wishes[i] = {pages[i].tier, "keep"};
  }
  mutable std::vector<PageFeatures> seen;
};

struct Rig {
  explicit Rig(Controller::Options options, const Config& config = small_config(64)) : cache(make(config)) {
    options.units_per_page.assign(config.classes.size(), 1);
    controller = std::move(Controller::create(cache.get(), &policy, options)).value();
  }
  void settle(SequenceId id, int tokens) {
    ASSERT_OK(grow(*cache, id, tokens));
    controller->settled(id, tokens);
  }
  PageId page(SequenceId id, size_t i) const { return cache->blocks(id, 0)[i].page; }

  std::unique_ptr<Cache> cache;
  Watcher policy;
  std::unique_ptr<Controller> controller;
};

TEST(Scores, TheAverageByHand) {
  // Equation 9 with beta = 0.5, divided by the weight of what was observed.
  Rig rig({.score_decay = 0.5});
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 8);
  const auto score = [&](size_t i) { return rig.controller->score(id, 0, rig.page(id, i)); };
  EXPECT_EQ(score(0), 0.0f);
  ASSERT_OK(rig.controller->observe(id, 0, Mass{.75f, .25f}));
  EXPECT_NEAR(score(0), .75, 1e-6) << "one observation is itself";
  ASSERT_OK(rig.controller->observe(id, 0, Mass{.25f, .75f}));
  EXPECT_NEAR(score(0), (.5 * .5 * .75 + .5 * .25) / .75, 1e-6);
  EXPECT_NEAR(score(1), (.5 * .5 * .25 + .5 * .75) / .75, 1e-6);
  ASSERT_OK(rig.cache->reserve(id, 1));  // a third page, reserved for this step
  ASSERT_OK(rig.controller->observe(id, 0, Mass{.0f, .5f, .5f}));
  EXPECT_NEAR(score(0), (.25 * .5 * .75 + .25 * .5 * 2 * .25) / .875, 1e-6);
  EXPECT_NEAR(score(2), .5 * .5 / .875, 1e-6) << "a page not seen before starts at 0";
  EXPECT_NEAR(score(0) + score(1) + score(2), 1, 1e-6);
}

TEST(Scores, MassesThatDoNotFitChangeNothing) {
  Rig rig({});
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 8);
  ASSERT_OK(rig.controller->observe(id, 0, Mass{.5f, .5f}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Mass& mass : {Mass{.5f}, Mass{.5f, .25f, .25f}, Mass{nan, .5f}, Mass{-.1f, 1.0f}, Mass{1.5f, 0.0f}}) {
    EXPECT_EQ(rig.controller->observe(id, 0, mass).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(rig.controller->observe(id, 1, Mass{.5f, .5f}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.controller->observe(id + 1, 0, Mass{}).code(), StatusCode::kInvalidArgument);
  EXPECT_NEAR(rig.controller->score(id, 0, rig.page(id, 0)), .5, 1e-6);
}

TEST(Scores, GoWithTheirPageAndSequence) {
  Rig rig({});
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 8);
  ASSERT_OK(rig.controller->observe(id, 0, Mass{.5f, .5f}));
  const PageId second = rig.page(id, 1);
  ASSERT_OK(rig.cache->truncate(id, 4));
  rig.controller->settled(id);
  EXPECT_EQ(rig.controller->score(id, 0, second), 0.0f);
  EXPECT_NEAR(rig.controller->score(id, 0, rig.page(id, 0)), .5, 1e-6);
  const PageId first = rig.page(id, 0);
  const SequenceId child = *rig.cache->fork(id);
  rig.cache->finish(id);
  rig.controller->collect();
  EXPECT_EQ(rig.controller->score(id, 0, first), 0.0f);
  EXPECT_EQ(rig.controller->score(child, 0, first), 0.0f);
}

TEST(Scores, PagesThatLeftTheWindowStopSpeaking) {
  Rig rig({}, testing::two_class_config(64));
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 8);
  const SequenceId child = *rig.cache->fork(id);
  const auto blocks = rig.cache->blocks(id, 1);
  ASSERT_OK(rig.controller->observe(id, 1, Mass(blocks.size(), 1.0f / static_cast<float>(blocks.size()))));
  EXPECT_GT(rig.controller->score(id, 1, blocks[0].page), 0.0f);
  rig.settle(id, 4);
  EXPECT_EQ(rig.controller->score(id, 1, blocks[0].page), 0.0f);
  EXPECT_TRUE(rig.cache->page(blocks[0].page)) << "the child still holds it";
  EXPECT_TRUE(rig.cache->contains(child));
}

TEST(Scores, AForkStartsWithoutUnlessItInherits) {
  Rig rig({.review_tokens = 1});
  const SequenceId parent = *rig.cache->start();
  rig.settle(parent, 8);
  ASSERT_OK(rig.controller->observe(parent, 0, Mass{.75f, .25f}));
  ASSERT_OK(rig.controller->mark(parent, 0, 3));
  ASSERT_OK(rig.controller->mark(parent, 6, 20));
  const SequenceId child = *rig.cache->fork(parent);
  EXPECT_EQ(rig.controller->score(child, 0, rig.page(child, 0)), 0.0f);
  EXPECT_TRUE(rig.controller->marks(child).empty());
  rig.controller->inherit(parent, child);
  EXPECT_NEAR(rig.controller->score(child, 0, rig.page(child, 0)), .75, 1e-6);
  EXPECT_EQ(rig.controller->marks(child), (std::vector<Span>{{0, 3}, {6, 8}}));
  rig.controller->inherit(parent, 999);
  rig.controller->inherit(999, child);
  rig.controller->inherit(child, child);
}

TEST(Scores, ASharedPageHasTheHighestScoreAndAnyonesMark) {
  Rig rig({.review_tokens = 1});
  const SequenceId parent = *rig.cache->start();
  rig.settle(parent, 8);
  ASSERT_OK(rig.controller->observe(parent, 0, Mass{.75f, .25f}));
  ASSERT_OK(rig.controller->mark(parent, 4, 5));
  rig.settle(parent, 0);
  const SequenceId child = *rig.cache->fork(parent);
  rig.settle(child, 0);
  ASSERT_OK(rig.controller->observe(child, 0, Mass{.5f, .5f}));
  rig.settle(child, 1);
  ASSERT_EQ(rig.policy.seen.size(), 3u);
  EXPECT_NEAR(rig.policy.seen[0].score, .75, 1e-6);
  EXPECT_NEAR(rig.policy.seen[1].score, .5, 1e-6);
  EXPECT_FALSE(rig.policy.seen[0].marked);
  EXPECT_TRUE(rig.policy.seen[1].marked);
  rig.cache->finish(parent);
  rig.settle(child, 1);
  EXPECT_NEAR(rig.policy.seen[0].score, .5, 1e-6);
  EXPECT_FALSE(rig.policy.seen[1].marked);
}

TEST(Scores, AReviewFollowsObservationsTokensAndMarks) {
  Rig rig({.review_tokens = 16, .review_observations = 3});
  const SequenceId id = *rig.cache->start();
  const auto reviews = [&] { return rig.controller->stats().reviews; };
  rig.settle(id, 1);
  EXPECT_EQ(reviews(), 1u);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(rig.controller->observe(id, 0, Mass(rig.cache->blocks(id, 0).size(), 0.0f)));
    rig.settle(id, 1);
  }
  EXPECT_EQ(reviews(), 1u);
  ASSERT_OK(rig.controller->observe(id, 0, Mass{1.0f}));
  EXPECT_EQ(reviews(), 1u);
  rig.settle(id, 1);
  EXPECT_EQ(reviews(), 2u);
  rig.settle(id, 12);
  EXPECT_EQ(reviews(), 3u) << "the next span of review_tokens";
  ASSERT_OK(rig.controller->mark(id, 0, 1));
  rig.settle(id, 1);
  EXPECT_EQ(reviews(), 4u);
  rig.settle(id, 1);
  EXPECT_EQ(reviews(), 4u);
  ASSERT_OK(rig.cache->truncate(id, 16));
  rig.controller->settled(id);
  EXPECT_EQ(reviews(), 5u);
}

TEST(Marks, JoinOverlapAndCut) {
  Marks marks;
  marks.add({10, 20});
  marks.add({30, 40});
  marks.add({0, 5});
  EXPECT_EQ(marks.spans(), (std::vector<Span>{{0, 5}, {10, 20}, {30, 40}}));
  EXPECT_TRUE(marks.overlap({19, 30}));
  EXPECT_FALSE(marks.overlap({20, 30}));
  EXPECT_FALSE(marks.overlap({5, 10}));
  marks.add({20, 30});
  EXPECT_EQ(marks.spans(), (std::vector<Span>{{0, 5}, {10, 40}}));
  marks.cut(12);
  EXPECT_EQ(marks.spans(), (std::vector<Span>{{0, 5}, {10, 12}}));
  marks.cut(10);
  EXPECT_EQ(marks.spans(), (std::vector<Span>{{0, 5}}));
  marks.cut(0);
  EXPECT_TRUE(marks.spans().empty());
}

TEST(Marks, SpansMustMakeSenseAndEndWithTheirText) {
  Rig rig({});
  const SequenceId id = *rig.cache->start();
  EXPECT_OK(rig.controller->mark(id, 0, 6));  // before its tokens exist
  EXPECT_EQ(rig.controller->mark(id, 3, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.controller->mark(id, -1, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.controller->mark(id + 1, 0, 3).code(), StatusCode::kInvalidArgument);
  rig.settle(id, 8);
  EXPECT_TRUE(rig.policy.seen[0].marked);
  EXPECT_TRUE(rig.policy.seen[1].marked);
  ASSERT_OK(rig.cache->truncate(id, 4));
  rig.controller->settled(id);
  EXPECT_EQ(rig.controller->marks(id), (std::vector<Span>{{0, 4}}));
}

}  // namespace
}  // namespace varve::cache
