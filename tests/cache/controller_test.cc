// The lifecycle: what the age policy wants, when conversions start, advance and publish, and what is counted.

#include "cache/lifecycle/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cache/lifecycle/age_policy.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::grow;
using testing::kRecentBytes;
using testing::kStale1Bytes;
using testing::make;
using testing::small_config;

constexpr size_t at(Tier tier) { return static_cast<size_t>(tier); }
TransitionCounts demotions(const Controller& c) { return c.stats().transitions[at(Tier::kRecent)][at(Tier::kStale1)]; }
uint64_t refused(const Controller& c, Refusal reason) { return c.stats().refused[static_cast<size_t>(reason)]; }

/// Marks which units of which destination were filled.
struct Worker {
  std::map<const uint8_t*, std::vector<int>> filled;
  size_t calls = 0;
  WorkFn fn() {
    return [this](std::span<const WorkUnit> units) {
      ++calls;
      for (const WorkUnit& u : units) {
        filled[u.dst].push_back(u.unit);
        u.dst[u.unit] = static_cast<uint8_t>(u.unit);
      }
    };
  }
};

struct Rig {
  explicit Rig(size_t pages, int recent_tokens, int units = 8, int review_tokens = 1)
      : Rig(small_config(pages), recent_tokens, units, review_tokens) {}
  Rig(const Config& config, int recent_tokens, int units, int review_tokens)
      : cache(make(config)), policy(recent_tokens) {
    auto made =
        Controller::create(cache.get(), &policy, {std::vector<int>(config.classes.size(), units), review_tokens},
                           [this](const TransitionEvent& e) { events.push_back(e); });
    EXPECT_TRUE(made.ok()) << made.status().message();
    controller = std::move(made).value();
  }
  /// One step of one sequence, then a step boundary.
  void step(SequenceId id, int tokens, int budget_tokens) {
    ASSERT_OK(grow(*cache, id, tokens));
    controller->settled(id, tokens);
    controller->advance(++steps, budget_tokens, worker.fn());
    ASSERT_OK(cache->check());
  }
  std::string tiers(SequenceId id) const {
    std::string text;
    for (const BlockEntry& b : cache->blocks(id, 0)) text += tier_name(b.ref.tier)[0] == 'r' ? 'R' : 'S';
    return text;
  }

  std::unique_ptr<Cache> cache;
  AgePolicy policy;
  std::vector<TransitionEvent> events;
  std::unique_ptr<Controller> controller;
  Worker worker;
  int64_t steps = 0;
};

TEST(AgePolicy, KeepsTheWindowAndNeverComesBack) {
  const AgePolicy policy(8);
  PageFeatures f;
  f.sealed = true;
  f.tier_bytes = {512, 0, 128, 0};
  f.age_tokens = 7;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kRecent);
  f.age_tokens = 8;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kStale1);
  EXPECT_STREQ(policy.wanted(f).why, "age");
  f.sealed = false;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kRecent);
  f.sealed = true;
  f.age_tokens = 0;
  f.relieving = true;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kStale1);
  EXPECT_STREQ(policy.wanted(f).why, "pressure");
  f.tier = Tier::kStale1;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kStale1);
  f.tier = Tier::kAnchor;
  EXPECT_EQ(policy.wanted(f).tier, Tier::kAnchor);
  f.tier = Tier::kRecent;
  f.tier_bytes = {512, 0, 0, 0};
  EXPECT_EQ(policy.wanted(f).tier, Tier::kRecent);
}

TEST(Controller, RefusesOptionsThatDoNotFit) {
  auto cache = make(small_config(8));
  const AgePolicy policy(8);
  EXPECT_EQ(Controller::create(cache.get(), &policy, {{}, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Controller::create(cache.get(), &policy, {{0}, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Controller::create(cache.get(), &policy, {{1}, 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Controller::create(cache.get(), &policy, {{1}, 1}).ok());
}

TEST(Controller, ConvertsInSlicesAndPublishesAtTheNextStep) {
  Rig rig(16, 4);
  const SequenceId id = *rig.cache->start();
  rig.step(id, 7, 1);  // the page at 0 is followed by 3 tokens
  EXPECT_EQ(rig.controller->stats().queue_length, 0u);
  // Each step of one token pays for one token of the page: 2 of its 8 units.
  for (int slice = 1; slice <= 4; ++slice) {
    rig.step(id, 1, 1);
    EXPECT_EQ(rig.tiers(id), slice == 1 ? "RR" : "RRR");
    ASSERT_EQ(rig.worker.filled.size(), 1u);
    EXPECT_EQ(rig.worker.filled.begin()->second.size(), static_cast<size_t>(2 * slice));
    EXPECT_EQ(demotions(*rig.controller).started, 1u);
    EXPECT_EQ(demotions(*rig.controller).published, 0u);
    EXPECT_EQ(rig.controller->stats().in_flight, 1u);
  }
  EXPECT_EQ(rig.worker.filled.begin()->second, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  rig.step(id, 1, 1);
  EXPECT_EQ(rig.tiers(id), "SRR");
  EXPECT_EQ(demotions(*rig.controller).published, 1u);
  EXPECT_EQ(rig.controller->stats().converted_tokens, 4u);
  ASSERT_EQ(rig.events.size(), 1u);
  const TransitionEvent& e = rig.events[0];
  EXPECT_EQ(e.step, 6);
  EXPECT_EQ(e.outcome, Outcome::kPublished);
  EXPECT_STREQ(e.why, "age");
  EXPECT_EQ(e.from_bytes, kRecentBytes);
  EXPECT_EQ(e.to_bytes, kStale1Bytes);
  EXPECT_GE(e.microseconds, 0.0);
  EXPECT_EQ(e.start, 0);
}

TEST(Controller, APrefillPaysForWhatItBrings) {
  Rig rig(32, 4);
  const SequenceId id = *rig.cache->start();
  for (int i = 0; i < 4; ++i) rig.step(id, 16, 1);
  // Pages that aged before the last step have been converted, one step later published: no backlog grows.
  EXPECT_EQ(rig.tiers(id).substr(0, 11), "SSSSSSSSSSS");
  EXPECT_EQ(rig.controller->stats().queue_length, 0u);
}

TEST(Controller, OldestFirstAndCountsReconcile) {
  Rig rig(64, 0, 1);
  const SequenceId id = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, id, 40));
  for (int i = 0; i < 12; ++i) rig.step(id, 0, 4);
  for (size_t i = 1; i < rig.events.size(); ++i) EXPECT_LT(rig.events[i - 1].start, rig.events[i].start);
  EXPECT_EQ(rig.tiers(id), "SSSSSSSSSS");
  const ControllerStats stats = rig.controller->stats();
  EXPECT_EQ(stats.converted_tokens, 40u);
  EXPECT_EQ(stats.queue_length + stats.in_flight, 0u);
  EXPECT_EQ(demotions(*rig.controller).started, 10u);
}

TEST(Controller, ASequenceDoesNotFeelItsNeighbours) {
  // The lengths at which each page of a sequence changes, alone and in company that steps at other times.
  const auto run = [](bool company) {
    Rig rig(256, 8, 8, 4);
    const SequenceId id = *rig.cache->start();
    SequenceId other = 0, third = 0;
    std::map<int, int> changed;
    for (int i = 0; i < 60; ++i) {
      if (company) {
        if (other == 0) other = *rig.cache->start();
        if (i == 10) third = *rig.cache->start();
        rig.step(other, 1 + i % 5, 3);
        if (i > 10 && i % 3 == 0) rig.step(third, 7, 3);
        if (i == 40) rig.cache->finish(other), other = 0;
      }
      rig.step(id, 1 + i % 3, 3);
      const auto blocks = rig.cache->blocks(id, 0);
      for (const BlockEntry& b : blocks) {
        if (b.ref.tier == Tier::kStale1) changed.try_emplace(b.start, rig.cache->length(id));
      }
    }
    return changed;
  };
  const auto alone = run(false);
  EXPECT_GT(alone.size(), 10u);
  EXPECT_EQ(alone, run(true));
}

TEST(Controller, NoRoomIsCountedWithItsReasonAndTriedAgain) {
  Config config = small_config(8);
  config.classes[0].slot_bytes[at(Tier::kStale1)] = kRecentBytes;  // the headroom is one such slot
  config.classes[0].slot_bytes[at(Tier::kStale2)] = 0;
  Rig rig(config, 0, 1, 1);
  const SequenceId id = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, id, 24));
  Conversion hog = std::move(rig.cache->retier(0, rig.cache->blocks(id, 0)[5].page, Tier::kStale1)).value();
  rig.step(id, 0, 4);
  EXPECT_EQ(refused(*rig.controller, Refusal::kNoRoom), 1u);
  EXPECT_EQ(demotions(*rig.controller).started, 0u);
  EXPECT_EQ(rig.controller->stats().queue_length, 5u);
  ASSERT_EQ(rig.events.size(), 1u);
  EXPECT_EQ(rig.events[0].outcome, Outcome::kRefused);
  EXPECT_STREQ(rig.events[0].why, refusal_name(Refusal::kNoRoom));
  hog = {};
  rig.step(id, 0, 4);
  EXPECT_EQ(demotions(*rig.controller).started, 1u);
}

TEST(Controller, AWishForAnUnusedTierIsCountedAndNotQueued) {
  struct AnchorPolicy : PagePolicy {
    Wish wanted(const PageFeatures&) const override { return {Tier::kAnchor, "test"}; }
  } policy;
  auto cache = make(small_config(8));
  auto controller = std::move(Controller::create(cache.get(), &policy, {{1}, 1})).value();
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  controller->settled(id, 4);
  EXPECT_EQ(refused(*controller, Refusal::kTierUnused), 1u);
  EXPECT_EQ(controller->stats().queue_length, 0u);
}

TEST(Controller, ASharedPageWaitsForItsShortestHolderAndMovesForAll) {
  Rig rig(64, 8, 1);
  const SequenceId parent = *rig.cache->start();
  rig.step(parent, 8, 4);
  const SequenceId child = *rig.cache->fork(parent);
  for (int i = 0; i < 4; ++i) rig.step(parent, 8, 4);
  EXPECT_EQ(rig.tiers(parent).substr(0, 3), "RRS");  // the child still sees the first two as recent
  rig.step(child, 7, 8);
  rig.step(child, 0, 8);
  EXPECT_EQ(rig.tiers(child).substr(0, 2), "SR");
  EXPECT_EQ(rig.tiers(parent).substr(0, 3), "SRS");
  EXPECT_EQ(rig.cache->blocks(child, 0)[0].page, rig.cache->blocks(parent, 0)[0].page);
}

TEST(Controller, FinishingAbandonsWhatNobodyHoldsAndPassesOnTheRest) {
  Rig rig(64, 0);
  const SequenceId a = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, a, 8));
  const SequenceId b = *rig.cache->fork(a);
  rig.step(a, 4, 6);  // the page at 0 is handed out wholly, the one at 4 half, the one at 8 waits
  EXPECT_EQ(rig.controller->stats().in_flight, 2u);
  EXPECT_EQ(rig.controller->stats().queue_length, 1u);
  rig.cache->finish(a);
  rig.step(b, 0, 4);  // publishes the first, pays for the rest of the second
  EXPECT_EQ(rig.controller->stats().withdrawn, 1u);
  EXPECT_EQ(rig.tiers(b), "SR");
  rig.cache->finish(b);
  rig.controller->advance(++rig.steps, 4, rig.worker.fn());
  EXPECT_EQ(demotions(*rig.controller).started, 2u);
  EXPECT_EQ(demotions(*rig.controller).published, 1u);
  EXPECT_EQ(demotions(*rig.controller).abandoned, 1u);
  EXPECT_EQ(rig.events.back().outcome, Outcome::kAbandoned);
  EXPECT_EQ(rig.cache->allocated_bytes(), 0u);
  ASSERT_OK(rig.cache->check());
}

TEST(Controller, TruncatedPagesLeaveTheQueueAndTheirConversions) {
  Rig rig(64, 0);
  const SequenceId id = *rig.cache->start();
  rig.step(id, 16, 1);  // 16 tokens settled pay for all four pages
  EXPECT_EQ(rig.controller->stats().in_flight, 4u);
  ASSERT_OK(rig.cache->truncate(id, 4));
  rig.controller->settled(id);
  rig.step(id, 1, 1);
  EXPECT_EQ(demotions(*rig.controller).published, 1u);
  EXPECT_EQ(demotions(*rig.controller).abandoned, 3u);

  ASSERT_OK(grow(*rig.cache, id, 11));
  rig.controller->settled(id);
  EXPECT_EQ(rig.controller->stats().queue_length, 3u);
  ASSERT_OK(rig.cache->truncate(id, 8));
  rig.controller->settled(id);
  EXPECT_EQ(rig.controller->stats().queue_length, 1u);
  EXPECT_EQ(rig.controller->stats().withdrawn, 2u);
}

TEST(Controller, RelieveMakesRoomNowAndSaysPressure) {
  Rig rig(8, 1000);  // by age alone nothing would ever move
  const SequenceId old = *rig.cache->start();
  const SequenceId young = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, old, 16));
  ASSERT_OK(grow(*rig.cache, young, 8));
  const size_t missing = rig.cache->shortfall(young, 8);
  ASSERT_GT(missing, 0u);
  EXPECT_GE(rig.controller->relieve(3, missing, rig.worker.fn()), missing);
  ASSERT_OK(rig.cache->reserve(young, 8));
  EXPECT_EQ(rig.tiers(old), "SRRR");  // the oldest pages of all sequences, no more than needed
  EXPECT_EQ(rig.tiers(young), "RRRR");
  EXPECT_EQ(rig.controller->stats().published_pressure, demotions(*rig.controller).published);
  for (const TransitionEvent& e : rig.events) {
    EXPECT_STREQ(e.why, "pressure");
    EXPECT_EQ(e.step, 3);
  }
  ASSERT_OK(rig.cache->check());
}

TEST(Controller, RelieveFinishesWhatIsInFlightFirst) {
  Rig rig(8, 0);
  const SequenceId id = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, id, 20));
  rig.step(id, 0, 2);
  ASSERT_EQ(rig.controller->stats().in_flight, 1u);
  EXPECT_GT(rig.controller->relieve(9, 1, rig.worker.fn()), 0u);
  EXPECT_EQ(rig.controller->stats().in_flight, 0u);
  EXPECT_EQ(rig.tiers(id), "SRRRR");
  EXPECT_EQ(rig.worker.filled.begin()->second, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_STREQ(rig.events.back().why, "pressure");
}

TEST(Controller, RelieveReturnsZeroWhenNothingCanMove) {
  Rig rig(8, 0);
  const SequenceId id = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, id, 3));  // nothing is sealed
  EXPECT_EQ(rig.controller->relieve(1, 1000, rig.worker.fn()), 0u);
  EXPECT_EQ(rig.worker.calls, 0u);
  ASSERT_OK(grow(*rig.cache, id, 1));
  const ReadGuard step = rig.cache->read({{id}});  // the source stays with its reader: nothing is gained yet
  EXPECT_EQ(rig.controller->relieve(2, 1000, rig.worker.fn()), 0u);
  EXPECT_EQ(rig.tiers(id), "S");
}

TEST(Controller, ALongSequenceLivesInASmallBudget) {
  // 60 pages through a budget of 16 recent slots: reserve, relieve, retry never fails.
  Rig rig(16, 16, 8, 4);
  const SequenceId id = *rig.cache->start();
  for (int i = 0; i < 60; ++i) {
    Status status = rig.cache->reserve(id, 4);
    while (status.code() == StatusCode::kResourceExhausted &&
           rig.controller->relieve(i, rig.cache->shortfall(id, 4), rig.worker.fn()) > 0) {
      status = rig.cache->reserve(id, 4);
    }
    if (!status.ok()) {
      // Only when almost everything is stale already.
      EXPECT_GT(i, 50) << status.message();
      break;
    }
    rig.step(id, 4, 1);
  }
  EXPECT_GT(rig.cache->length(id), 200);
}

TEST(Controller, FlushFinishesOneSequence) {
  Rig rig(64, 0);
  const SequenceId a = *rig.cache->start(), b = *rig.cache->start();
  ASSERT_OK(grow(*rig.cache, a, 16));
  ASSERT_OK(grow(*rig.cache, b, 16));
  rig.controller->settled(a);
  rig.controller->settled(b);
  rig.controller->advance(1, 2, rig.worker.fn());
  rig.controller->flush(2, a, rig.worker.fn());
  EXPECT_EQ(rig.tiers(a), "SSSS");
  EXPECT_EQ(rig.tiers(b), "RRRR");
  rig.controller->flush(2, 12345, rig.worker.fn());
  ASSERT_OK(rig.cache->check());
}

TEST(Controller, DestroyingItAbandonsWhatIsInFlight) {
  Rig rig(64, 0);
  const SequenceId id = *rig.cache->start();
  rig.step(id, 8, 1);
  ASSERT_EQ(rig.controller->stats().in_flight, 2u);
  rig.controller.reset();
  EXPECT_EQ(rig.cache->pool(0, Tier::kStale1).slots_total, 0u);
  EXPECT_EQ(rig.tiers(id), "RR");
  ASSERT_OK(rig.cache->check());
}

}  // namespace
}  // namespace varve::cache
