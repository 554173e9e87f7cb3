// Promotion: where the finer bytes come from, what waits for them, and who lets go of what when it does not happen.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cache/lifecycle/controller.h"
#include "cache/lifecycle/score_policy.h"
#include "cache/store/file_store.h"
#include "cache/store/memory_store.h"
#include "cache/store/stored_refinements.h"
#include "fake_engine.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::make;
using testing::mix;

constexpr int kPage = 4;
constexpr size_t kFine = 512, kCoarse = 128;
constexpr size_t at(Tier tier) { return static_cast<size_t>(tier); }

Config config_of(size_t pages) {
  Config config;
  ClassConfig full;
  full.page_tokens = kPage;
  full.slot_bytes = {kFine, kFine, kCoarse, 0};
  config.classes = {full};
  config.budget_bytes = pages * kFine;
  config.poison = true;
  return config;
}

/// What a row says: 8 bytes of it in a fine tier, the first 4 in a stale one.
uint64_t print_of(int token, int position) {
  return mix(mix(static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15u) ^ static_cast<uint64_t>(position));
}
size_t row_bytes(Tier tier) { return tier <= Tier::kAnchor ? 8 : 4; }

/// Moves the pages at the given positions to the given tiers.
struct Scripted : Policy {
  void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const override {
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto it = wants.find(pages[i].start);
      wishes[i] = {it != wants.end() && pages[i].sealed ? it->second : pages[i].tier, "script", 0};
      if (pages[i].relieving && pages[i].sealed) wishes[i].tier = Tier::kStale1;
    }
  }
  std::map<int, Tier> wants;
};

/// Passes on to a store, remakes pages itself after `polls` answers of kPending, and writes down what it is asked.
struct Source : FidelitySource {
  bool keep(size_t cls, PageId page, Tier tier, const uint8_t* slot, size_t bytes) override {
    ++keeps[page];
    return kept != nullptr && kept->keep(cls, page, tier, slot, bytes);
  }
  State ask(SequenceId sequence, size_t cls, PageId page, int start) override {
    ++asks[page];
    asked_by = sequence;
    open.insert(page);
    State state = kept == nullptr ? State::kNone : kept->ask(sequence, cls, page, start);
    if (state == State::kNone && remake) {
      if (asks[page] > polls) {
        std::vector<uint8_t>& slot = remade[page];
        slot.assign(kFine, 0);
        for (int row = 0; row < kPage; ++row) {
          const uint64_t print = print_of(token(start + row), start + row);
          std::memcpy(slot.data() + 8 * row, &print, 8);
        }
        state = State::kReady;
      } else {
        state = State::kPending;
      }
    }
    if (state == State::kNone) open.erase(page);
    return state;
  }
  Bytes bytes(size_t cls, PageId page) override {
    if (const auto it = remade.find(page); it != remade.end()) return {it->second.data(), Tier::kRecent, "recompute"};
    return kept->bytes(cls, page);
  }
  void done(size_t cls, PageId page) override {
    ++dones[page];
    open.erase(page);
    remade.erase(page);
    if (kept != nullptr) kept->done(cls, page);
  }
  void forget(PageId page) override {
    ++forgets[page];
    if (kept != nullptr) kept->forget(page);
  }
  static int token(int position) { return position * 7 + 3; }

  StoredRefinements* kept = nullptr;
  bool remake = false;
  int polls = 0;
  SequenceId asked_by = 0;
  std::map<PageId, int> keeps, asks, dones, forgets;
  std::set<PageId> open;  ///< asked and not done
  std::map<PageId, std::vector<uint8_t>> remade;
};

struct Rig {
  explicit Rig(Controller::Options options = {}, FidelitySource* source = nullptr, size_t pages = 64,
               const Policy* other_policy = nullptr)
      : cache(make(config_of(pages))) {
    options.units_per_page = {kPage};
    options.review_tokens = 1;
    auto made = Controller::create(
        cache.get(), other_policy != nullptr ? other_policy : &policy, options,
        [this](const TransitionEvent& e) { events.push_back(e); }, source);
    EXPECT_TRUE(made.ok()) << made.status().message();
    controller = std::move(made).value();
  }

  /// Settles tokens of one sequence and writes their rows as a model would.
  void settle(SequenceId id, int tokens) {
    const int past = cache->length(id);
    ASSERT_OK(cache->reserve(id, tokens));
    for (const BlockEntry& b : cache->blocks(id, 0)) {
      for (int row = 0; row < kPage; ++row) {
        const int position = b.start + row;
        if (position < past || position >= past + tokens) continue;
        const uint64_t print = print_of(Source::token(position), position);
        std::memcpy(cache->slot(0, b.ref) + 8 * row, &print, 8);
      }
    }
    ASSERT_OK(cache->settle(id, tokens));
    // A mark far beyond the text makes a review due, whatever the length.
    if (tokens == 0) ASSERT_OK(controller->mark(id, 1 << 20, (1 << 20) + 1));
    controller->settled(id, tokens);
  }
  void step(SequenceId id, int tokens, int budget = 1000) {
    settle(id, tokens);
    boundary(budget);
  }
  void boundary(int budget = 1000) {
    controller->advance(++steps, budget, work());
    ASSERT_OK(cache->check());
  }
  /// One unit is one row: its bytes in the old tier's form become the new one's.
  WorkFn work() {
    return [](std::span<const WorkUnit> units) {
      for (const WorkUnit& u : units) {
        uint64_t print = 0;
        std::memcpy(&print, u.src + row_bytes(u.from) * static_cast<size_t>(u.unit), row_bytes(u.from));
        std::memcpy(u.dst + row_bytes(u.to) * static_cast<size_t>(u.unit), &print, row_bytes(u.to));
      }
    };
  }
  PageId page(SequenceId id, size_t i) const { return cache->blocks(id, 0)[i].page; }
  std::string tiers(SequenceId id) const {
    std::string text;
    for (const BlockEntry& b : cache->blocks(id, 0)) text += "RAS2"[at(b.ref.tier)];
    return text;
  }
  /// The page has every bit that was written.
  bool exact(SequenceId id, size_t i) {
    const BlockEntry b = cache->blocks(id, 0)[i];
    for (int row = 0; row < kPage; ++row) {
      const uint64_t print = print_of(Source::token(b.start + row), b.start + row);
      if (std::memcmp(cache->slot(0, b.ref) + row_bytes(b.ref.tier) * static_cast<size_t>(row), &print, 8) != 0) {
        return false;
      }
    }
    return row_bytes(b.ref.tier) == 8;
  }
  /// A sequence of `pages` full pages and one token, the first `stale` of them Stale1.
  SequenceId with_stale(int pages, int stale) {
    const SequenceId id = *cache->start();
    settle(id, pages * kPage + 1);
    for (int i = 0; i < stale; ++i) policy.wants[i * kPage] = Tier::kStale1;
    step(id, 0);
    step(id, 0);
    EXPECT_EQ(tiers(id),
              std::string(static_cast<size_t>(stale), 'S') + std::string(static_cast<size_t>(pages + 1 - stale), 'R'));
    return id;
  }
  ControllerStats stats() const { return controller->stats(); }

  std::unique_ptr<Cache> cache;
  Scripted policy;
  std::vector<TransitionEvent> events;
  std::unique_ptr<Controller> controller;
  int64_t steps = 0;
};

/// A move must not wait in tests that are not about waiting.
Controller::Options at_once() { return {.dwell_tokens = 0}; }

void expect_restored(PageStore* store) {
  StoredRefinements refinements(store);
  Source source;
  source.kept = &refinements;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(3, 2);
  EXPECT_FALSE(rig.exact(id, 1));
  EXPECT_EQ(store->bytes(), 2 * kFine);
  EXPECT_EQ(rig.stats().kept, 2u);
  rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id), "SARR");
  EXPECT_TRUE(rig.exact(id, 1)) << "the bytes before the demotion are back";
  EXPECT_EQ(rig.stats().promotions, (std::map<std::string, uint64_t>{{"restore", 1}}));
  const TransitionEvent& e = rig.events.back();
  EXPECT_STREQ(e.how, "restore");
  EXPECT_EQ(e.from, Tier::kStale1);
  EXPECT_EQ(e.to, Tier::kAnchor);
  EXPECT_EQ(e.from_bytes, kCoarse);
  EXPECT_EQ(e.to_bytes, kFine);
  EXPECT_EQ(e.sequence, id);
  EXPECT_EQ(source.dones[rig.page(id, 1)], 1);
  EXPECT_EQ(refinements.buffer_bytes(), 0u);

  // Down and up again: what is kept is still right and is not written twice.
  rig.policy.wants[4] = Tier::kStale1;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(source.keeps[rig.page(id, 1)], 1);
  rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_TRUE(rig.exact(id, 1));
  EXPECT_EQ(store->stats().puts, 2u);

  const PageId page = rig.page(id, 1);
  rig.cache->finish(id);
  rig.controller->collect();
  EXPECT_EQ(store->bytes(), 0u) << "forget frees what was kept";
  EXPECT_EQ(source.forgets[page], 1);
  EXPECT_EQ(rig.stats().kept_now, 0u);
  EXPECT_EQ(rig.cache->allocated_bytes(), 0u);
}

TEST(Promotion, RestoresFromHostMemory) {
  MemoryStore store(1 << 20);
  expect_restored(&store);
}

TEST(Promotion, RestoresFromAFile) {
  auto store = FileStore::create(::testing::TempDir(), 1 << 20);
  ASSERT_OK(store.status());
  expect_restored(store->get());
}

TEST(Promotion, WithoutASourceIsLossyAndSaysSo) {
  Rig rig(at_once());
  const SequenceId id = rig.with_stale(3, 2);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id), "ASRR");
  EXPECT_FALSE(rig.exact(id, 0));
  EXPECT_STREQ(rig.events.back().how, "lossy");
  EXPECT_EQ(rig.stats().promotions, (std::map<std::string, uint64_t>{{"lossy", 1}}));
  EXPECT_EQ(rig.stats().kept, 0u);
}

TEST(Promotion, BytesFromCodesAreNeverKeptAsFine) {
  MemoryStore store(kFine);  // room for the page at 0 alone
  StoredRefinements refinements(&store);
  Source source;
  source.kept = &refinements;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(3, 2);
  EXPECT_EQ(source.keeps[rig.page(id, 1)], 1);
  rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  ASSERT_STREQ(rig.events.back().how, "lossy");
  rig.policy.wants[4] = Tier::kStale1;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id), "SSRR");
  EXPECT_EQ(source.keeps[rig.page(id, 1)], 1) << "the anchor held what the codes say";
  source.remake = true;
  rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_TRUE(rig.exact(id, 1));
  rig.policy.wants[4] = Tier::kStale1;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(source.keeps[rig.page(id, 1)], 2) << "recomputed bytes are fine again";
}

TEST(Promotion, ARefusedOneIsCountedAndNotAskedForAtEachReview) {
  Source source;
  Rig rig({.dwell_tokens = 4, .allow_lossy = false}, &source);
  const SequenceId id = rig.with_stale(3, 1);
  rig.policy.wants[0] = Tier::kAnchor;
  // The script does not look at dwelling, as a policy should; a real one does.
  struct Patient : Policy {
    void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const override {
      for (size_t i = 0; i < pages.size(); ++i) {
        const bool wants = pages[i].start == 0 && pages[i].sealed && !pages[i].dwelling;
        wishes[i] = {wants ? Tier::kAnchor : pages[i].tier, "patient", 0};
      }
    }
  } patient;
  Controller::Options options{.units_per_page = {kPage}, .review_tokens = 1, .dwell_tokens = 4, .allow_lossy = false};
  rig.controller = std::move(Controller::create(
                                 rig.cache.get(), &patient, options,
                                 [&](const TransitionEvent& e) { rig.events.push_back(e); }, &source))
                       .value();
  rig.step(id, 1);
  const auto refused = [&] { return rig.stats().refused[static_cast<size_t>(Refusal::kNoSource)]; };
  EXPECT_EQ(refused(), 1u);
  EXPECT_STREQ(rig.events.back().why, "no source");
  EXPECT_EQ(rig.events.back().outcome, Outcome::kRefused);
  for (int i = 0; i < 3; ++i) rig.step(id, 1);
  EXPECT_EQ(refused(), 1u);
  rig.step(id, 1);
  EXPECT_EQ(refused(), 2u);
  EXPECT_EQ(rig.tiers(id)[0], 'S');
  EXPECT_EQ(source.dones[rig.page(id, 0)], 0);
}

TEST(Promotion, APendingSourceHoldsNoSlotAndBlocksNobody) {
  Source source;
  source.remake = true;
  source.polls = 3;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(5, 4);
  const PageId page = rig.page(id, 3);
  const SequenceId other = *rig.cache->start();
  rig.policy.wants[12] = Tier::kAnchor;
  rig.policy.wants[16] = Tier::kStale1;
  rig.settle(other, 9);
  rig.step(id, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(rig.stats().pending, 1u);
    EXPECT_EQ(rig.cache->pool(0, Tier::kAnchor).slots_total, 0u);
    rig.settle(other, 1);
    rig.step(id, 0);
  }
  EXPECT_EQ(rig.tiers(id), "SSSSSR") << "the younger page passed the one that waits";
  EXPECT_EQ(rig.tiers(other), "SSR");
  EXPECT_EQ(rig.cache->pool(0, Tier::kAnchor).slots_total, 0u);
  EXPECT_EQ(source.asked_by, id);
  rig.step(other, 1);
  EXPECT_EQ(source.asks[page], 3) << "not asked while only others step";
  rig.step(id, 0);
  EXPECT_EQ(rig.stats().pending, 0u);
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id), "SSSASR");
  EXPECT_TRUE(rig.exact(id, 3));
  EXPECT_EQ(source.asks[page], 4);
  EXPECT_EQ(source.dones[page], 1);
  EXPECT_EQ(rig.stats().promotions, (std::map<std::string, uint64_t>{{"recompute", 1}}));
}

TEST(Promotion, ThePageGoesWhilePending) {
  Source source;
  source.remake = true;
  source.polls = 1000;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  const PageId page = rig.page(id, 1);
  rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  ASSERT_EQ(source.open.size(), 1u);
  ASSERT_OK(rig.cache->truncate(id, 4));
  rig.controller->settled(id);
  EXPECT_EQ(source.dones[page], 1);
  rig.step(id, 1);
  EXPECT_EQ(source.dones[page], 1);
  EXPECT_TRUE(source.open.empty());
  EXPECT_EQ(rig.stats().pending + rig.stats().queue_length, 0u);
}

TEST(Promotion, TheSequenceFinishesWhilePending) {
  Source source;
  source.remake = true;
  source.polls = 1000;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  rig.policy.wants[0] = rig.policy.wants[4] = Tier::kAnchor;
  rig.step(id, 0);
  EXPECT_EQ(source.open.size(), 2u);
  const PageId page = rig.page(id, 0);
  rig.cache->finish(id);
  rig.controller->collect();
  rig.boundary();
  EXPECT_TRUE(source.open.empty());
  EXPECT_EQ(source.dones[page], 1);
  EXPECT_EQ(rig.cache->allocated_bytes(), 0u);
}

TEST(Promotion, AWithdrawnWishStopsTheSource) {
  Source source;
  source.remake = true;
  source.polls = 1000;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(source.asks[rig.page(id, 0)], 2) << "a review in between does not start it anew";
  const uint64_t withdrawn = rig.stats().withdrawn;
  rig.policy.wants[0] = Tier::kStale1;
  rig.step(id, 0);
  EXPECT_EQ(source.dones[rig.page(id, 0)], 1);
  EXPECT_EQ(rig.stats().withdrawn, withdrawn + 1);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.step(id, 0);
  rig.policy.wants[0] = Tier::kRecent;  // another promotion of the same page
  rig.step(id, 0);
  EXPECT_EQ(source.dones[rig.page(id, 0)], 2);
  EXPECT_EQ(rig.stats().pending, 1u);
}

TEST(Promotion, AbandonedHalfWayLetsGoOnce) {
  Source source;
  source.remake = true;
  for (const bool destroy : {false, true}) {
    Rig rig(at_once(), &source);
    const SequenceId id = rig.with_stale(4, 2);
    const PageId page = rig.page(id, 0);
    source.dones.clear();
    rig.policy.wants[0] = Tier::kAnchor;
    rig.step(id, 0, 2);  // two of its four rows
    ASSERT_EQ(rig.stats().in_flight, 1u);
    EXPECT_EQ(source.dones[page], 0);
    if (destroy) {
      rig.controller.reset();
    } else {
      rig.cache->finish(id);
      rig.boundary();
      EXPECT_EQ(rig.events.back().outcome, Outcome::kAbandoned);
      EXPECT_STREQ(rig.events.back().how, "recompute");
      EXPECT_EQ(rig.stats().transitions[at(Tier::kStale1)][at(Tier::kAnchor)].abandoned, 1u);
    }
    EXPECT_EQ(source.dones[page], 1);
    EXPECT_TRUE(source.open.empty());
    ASSERT_OK(rig.cache->check());
  }
}

TEST(Promotion, DestroyingTheControllerStopsAPendingSource) {
  Source source;
  source.remake = true;
  source.polls = 1000;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.step(id, 0);
  rig.controller.reset();
  EXPECT_EQ(source.dones[rig.page(id, 0)], 1);
}

TEST(Promotion, AHolderThatLivesOnFinishesIt) {
  Source source;
  source.remake = true;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  const SequenceId child = *rig.cache->fork(id);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.step(id, 0, 2);
  rig.cache->finish(id);
  rig.step(child, 0);
  rig.step(child, 0);
  EXPECT_EQ(rig.tiers(child)[0], 'A');
  EXPECT_TRUE(rig.exact(child, 0));
  EXPECT_EQ(rig.events.back().sequence, child);
  EXPECT_EQ(source.dones[rig.page(child, 0)], 1);
}

TEST(Promotion, LeavesTheHeadroomAndDoesNotBlockDemotions) {
  Rig rig(at_once(), nullptr, 8);
  const SequenceId id = rig.with_stale(6, 4);
  rig.policy.wants[0] = rig.policy.wants[4] = Tier::kAnchor;
  rig.policy.wants[16] = Tier::kStale1;
  const SequenceId filler = *rig.cache->start();  // unknown to the controller
  while (testing::grow(*rig.cache, filler, kPage).ok()) continue;
  // A destination would fit, but then no demotion would any more.
  const size_t left = rig.cache->budget_bytes() - rig.cache->allocated_bytes();
  ASSERT_GE(left, kFine);
  ASSERT_LT(left, kFine + rig.cache->headroom_bytes());
  rig.step(id, 0);
  EXPECT_EQ(rig.stats().refused[static_cast<size_t>(Refusal::kNoRoom)], 1u) << "once, not for both";
  EXPECT_STREQ(rig.events.back().why, "no room");
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id).substr(0, 5), "SSSSS") << "the demotion went on";
}

TEST(Promotion, APageThatOnlyThePrefixCacheHoldsKeepsItsRefinement) {
  MemoryStore store(1 << 20);
  StoredRefinements refinements(&store);
  Rig rig(at_once(), &refinements);
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 9);
  const PageId page = rig.page(id, 0);
  ASSERT_OK(rig.cache->hold(0, page));
  rig.policy.wants[0] = Tier::kStale1;
  rig.step(id, 0);  // all units are out, nothing is published
  rig.cache->finish(id);
  rig.controller->collect();
  EXPECT_EQ(rig.cache->page(page)->ref.tier, Tier::kStale1);
  EXPECT_EQ(store.bytes(), kFine);
  rig.cache->release(0, page);
  rig.controller->collect();
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(rig.cache->allocated_bytes(), 0u);
}

TEST(Promotion, MovesBetweenEqualLayoutsAreCopies) {
  Controller::Options options = at_once();
  options.layouts = {{7, 7, 9, 0}};
  Rig rig(options);
  const SequenceId id = *rig.cache->start();
  rig.settle(id, 9);
  rig.policy.wants = {{0, Tier::kAnchor}, {4, Tier::kStale1}};
  rig.step(id, 0);
  rig.step(id, 0);
  EXPECT_EQ(rig.tiers(id), "ASR");
  ASSERT_EQ(rig.events.size(), 2u);
  EXPECT_STREQ(rig.events[0].how, "copy");
  EXPECT_STREQ(rig.events[1].how, "convert");
  EXPECT_TRUE(rig.exact(id, 0));
  EXPECT_TRUE(rig.stats().promotions.empty()) << "protecting a recent page restores nothing";
}

TEST(Promotion, FlushFinishesWhatIsReadyAndLeavesWhatIsPending) {
  Source source;
  source.remake = true;
  source.polls = 1;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(5, 2);
  rig.policy.wants[0] = Tier::kAnchor;
  rig.policy.wants[8] = Tier::kStale1;
  rig.settle(id, 0);
  rig.controller->flush(9, id, rig.work());
  EXPECT_EQ(rig.tiers(id), "SSSRRR");
  EXPECT_EQ(rig.stats().pending, 1u);
  rig.controller->flush(10, id, rig.work());
  EXPECT_EQ(rig.tiers(id), "ASSRRR");
}

TEST(Pressure, AbandonsPromotionsAndDemotesAnchorsLastMarkedAtTheVeryEnd) {
  ScorePolicy::Options o{.recent_tokens = 8, .anchor_tokens = 3 * kPage, .weight_age = 0, .weight_shared = 0};
  const ScorePolicy policy(o);
  MemoryStore store(1 << 20);
  StoredRefinements refinements(&store);
  Rig rig({.score_decay = 0, .dwell_tokens = 1000}, &refinements, 12, &policy);
  const SequenceId id = *rig.cache->start();
  ASSERT_OK(rig.controller->mark(id, 0, 2));
  rig.settle(id, 24);
  ASSERT_OK(rig.controller->observe(id, 0, std::vector<float>{.0f, .25f, .3f, .2f, .0f, .25f}));
  rig.step(id, 0);
  rig.step(id, 0);
  ASSERT_EQ(rig.tiers(id), "AAAARR");
  rig.settle(id, 8);
  ASSERT_EQ(rig.tiers(id), "AAAARRRR");
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) {
    const size_t before = rig.events.size();
    rig.controller->relieve(50 + i, 1, rig.work());
    for (size_t e = before; e < rig.events.size(); ++e) {
      EXPECT_STREQ(rig.events[e].why, "pressure");
      if (rig.events[e].outcome == Outcome::kPublished) order.push_back(rig.events[e].start);
    }
  }
  // Recent oldest first, then anchors with the lowest score first (.2, .25, .3), then the marked one.
  EXPECT_EQ(order, (std::vector<int>{16, 20, 24, 28, 12, 4, 8, 0}));
  EXPECT_EQ(rig.tiers(id), "SSSSSSSS");
  EXPECT_EQ(rig.stats().published_pressure, 8u);
}

TEST(Pressure, APromotionInFlightIsAbandoned) {
  Source source;
  source.remake = true;
  Rig rig(at_once(), &source);
  const SequenceId id = rig.with_stale(4, 2);
  rig.policy.wants = {{0, Tier::kAnchor}};
  rig.step(id, 0, 2);
  ASSERT_EQ(rig.stats().in_flight, 1u);
  EXPECT_GT(rig.controller->relieve(99, 1, rig.work()), 0u);
  EXPECT_EQ(rig.tiers(id)[0], 'S');
  EXPECT_EQ(rig.events[rig.events.size() - 1].outcome, Outcome::kAbandoned);
  EXPECT_EQ(source.dones[rig.page(id, 0)], 1);
  EXPECT_EQ(rig.cache->pool(0, Tier::kAnchor).slots_total, 0u);
}

TEST(Pressure, APageThatJustCameBackAndMustGoCountsAsFlapped) {
  Rig rig({.dwell_tokens = 16});
  const SequenceId id = rig.with_stale(3, 2);
  rig.policy.wants = {{0, Tier::kAnchor}};
  rig.step(id, 1);
  rig.step(id, 1);
  ASSERT_EQ(rig.tiers(id)[0], 'A');
  rig.controller->relieve(99, size_t{1} << 30, rig.work());
  ASSERT_EQ(rig.tiers(id)[0], 'S');
  EXPECT_EQ(rig.stats().flapped, 1u);
}

TEST(ScoredLifecycle, AWaitingPromotionHoldsItsPlaceLikeAnAnchor) {
  // One place. The page at 0 gets it and waits for its source; the page at 4 then scores a little higher.
  ScorePolicy::Options o{.recent_tokens = 4, .anchor_tokens = kPage, .weight_age = 0, .weight_shared = 0};
  const ScorePolicy policy(o);
  Source source;
  source.remake = true;
  source.polls = 4;
  Rig rig({.score_decay = 0, .dwell_tokens = 0}, &source, 64, &policy);
  const SequenceId id = *rig.cache->start();
  rig.step(id, 20);
  rig.step(id, 1);
  ASSERT_EQ(rig.tiers(id), "SSSSRR");
  const PageId page = rig.page(id, 0);
  const auto observe = [&](float first, float second, int budget = 2) {
    ASSERT_OK(rig.controller->observe(id, 0, std::vector<float>{first, second, 0, 0, 0, 1 - first - second}));
    rig.step(id, 0, budget);
  };
  observe(.4f, .3f);
  for (int i = 0; i < 3; ++i) observe(.3f, .4f);
  EXPECT_EQ(source.asks.size(), 1u);
  EXPECT_EQ(source.dones[page], 0) << "withdrawn for less than enter_ratio";
  observe(.3f, .4f);  // ready; in flight for two steps
  ASSERT_EQ(rig.stats().in_flight, 1u);
  observe(.2f, .4f, 1000);
  observe(.3f, .4f);
  EXPECT_EQ(rig.tiers(id), "ASSSRR");
  EXPECT_EQ(source.asks.size(), 1u) << "a page in flight has its place";
  for (int i = 0; i < 3; ++i) observe(.2f, .4f);  // the demotion is paid for first
  EXPECT_EQ(source.asks.size(), 2u);
}

TEST(SharedPages, OppositeViewsOfTwoHoldersDoNotFlap) {
  // The parent reads the page at 0. The child reads one of its own pages, which fills its budget.
  ScorePolicy::Options o{.recent_tokens = 4, .anchor_tokens = kPage, .weight_age = 0, .weight_shared = 0};
  const ScorePolicy policy(o);
  Rig rig({.score_decay = 0.5, .dwell_tokens = 2}, nullptr, 64, &policy);
  const SequenceId parent = *rig.cache->start();
  rig.settle(parent, 16);
  const SequenceId child = *rig.cache->fork(parent);
  rig.settle(child, 12);
  const auto observe = [&](SequenceId id, size_t favourite, float share) {
    std::vector<float> mass(rig.cache->blocks(id, 0).size(), 0.0f);
    mass[favourite] = share;
    mass.back() += 1 - share;
    ASSERT_OK(rig.controller->observe(id, 0, mass));
  };
  for (int i = 0; i < 30; ++i) {
    observe(parent, 0, .4f);
    observe(child, 4, .9f);
    rig.settle(parent, 1);
    rig.settle(child, 1);
    rig.boundary();
  }
  EXPECT_EQ(rig.tiers(parent).substr(0, 4), "ASSS");
  EXPECT_EQ(rig.tiers(child).substr(0, 6), "ASSSAS");
  ASSERT_EQ(rig.page(parent, 0), rig.page(child, 0));
  std::map<PageId, int> moves;
  for (const TransitionEvent& e : rig.events) ++moves[e.page];
  EXPECT_EQ(moves[rig.page(parent, 0)], 1);
  EXPECT_EQ(rig.stats().flapped, 0u);
  // When the one who wanted it is gone, the other's view counts.
  rig.cache->finish(parent);
  for (int i = 0; i < 4; ++i) {
    observe(child, 4, .9f);
    rig.step(child, 1);
  }
  EXPECT_EQ(rig.tiers(child).substr(0, 6), "SSSSAS");
}

TEST(ScoredLifecycle, AttentionThatReturnsPromotesThePageAndRestoresIt) {
  ScorePolicy::Options o{.recent_tokens = 8, .anchor_tokens = 2 * kPage};
  const ScorePolicy policy(o);
  MemoryStore store(1 << 20);
  StoredRefinements refinements(&store);
  Rig rig({.score_decay = 0.5, .dwell_tokens = 8}, &refinements, 64, &policy);
  const SequenceId id = *rig.cache->start();
  const auto run = [&](int steps, size_t favourite) {
    for (int i = 0; i < steps; ++i) {
      ASSERT_OK(rig.cache->reserve(id, 1));
      std::vector<float> mass(rig.cache->blocks(id, 0).size(), 0.0f);
      mass[std::min(favourite, mass.size() - 1)] = 1.0f;
      ASSERT_OK(rig.controller->observe(id, 0, mass));
      rig.step(id, 1, 1);
    }
  };
  run(60, 1000);  // the newest page alone is read
  ASSERT_EQ(rig.tiers(id)[2], 'S');
  run(20, 2);
  EXPECT_EQ(rig.tiers(id)[2], 'A');
  EXPECT_TRUE(rig.exact(id, 2));
  const auto e = std::find_if(rig.events.begin(), rig.events.end(),
                              [](const TransitionEvent& x) { return x.to == Tier::kAnchor && x.start == 8; });
  ASSERT_NE(e, rig.events.end());
  EXPECT_STREQ(e->why, "score");
  EXPECT_STREQ(e->how, "restore");
  EXPECT_GT(e->score, 0.0f);
  run(60, 1000);
  EXPECT_EQ(rig.tiers(id)[2], 'S');
  EXPECT_STREQ(rig.events.back().how, "convert");
}

/// Everything of an event but its duration.
using Line = std::tuple<int64_t, SequenceId, size_t, PageId, int, Tier, Tier, std::string, std::string, Outcome, float>;

std::vector<Line> random_run(uint32_t seed, uint64_t* moved) {
  ScorePolicy::Options o{.recent_tokens = 8, .anchor_tokens = 3 * kPage, .enter_ratio = 1.1};
  const ScorePolicy policy(o);
  auto store = FileStore::create(::testing::TempDir(), 40 * kFine);
  EXPECT_OK(store.status());
  StoredRefinements refinements(store->get());
  Source source;
  source.kept = &refinements;
  source.remake = seed % 2 == 0;
  source.polls = 2;
  Rig rig({.score_decay = 0.7, .dwell_tokens = 6}, &source, 40, &policy);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  std::vector<SequenceId> ids;
  for (int step = 0; step < 150; ++step) {
    if (ids.size() < 3 && below(4) == 0) {
      if (auto id = ids.empty() || below(2) ? rig.cache->start() : rig.cache->fork(ids[0]); id.ok()) ids.push_back(*id);
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      const SequenceId id = ids[i];
      const int tokens = below(6) == 0 ? 6 : 1;
      if (below(5) == 0) continue;
      Status room = rig.cache->reserve(id, tokens);
      while (room.code() == StatusCode::kResourceExhausted &&
             rig.controller->relieve(step, rig.cache->shortfall(id, tokens), rig.work()) > 0) {
        room = rig.cache->reserve(id, tokens);
      }
      if (!room.ok() || below(60) == 0) {
        rig.cache->finish(id);
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(i--));
        continue;
      }
      const size_t pages = rig.cache->blocks(id, 0).size();
      std::vector<float> mass(pages, .3f / static_cast<float>(pages));
      mass[static_cast<size_t>(step / 20 * 5) % pages] += .7f;
      EXPECT_OK(rig.controller->observe(id, 0, mass));
      rig.settle(id, tokens);
    }
    rig.boundary(3);
    for (const SequenceId id : ids) {
      for (size_t i = 0; i < rig.cache->blocks(id, 0).size(); ++i) {
        const BlockEntry b = rig.cache->blocks(id, 0)[i];
        for (int row = 0; row < b.tokens; ++row) {
          const uint64_t print = print_of(Source::token(b.start + row), b.start + row);
          const bool fine = std::memcmp(rig.cache->slot(0, b.ref) + row_bytes(b.ref.tier) * static_cast<size_t>(row),
                                        &print, source.remake ? row_bytes(b.ref.tier) : 4) == 0;
          EXPECT_TRUE(fine) << "seed " << seed << " step " << step << " position " << b.start + row;
        }
      }
    }
  }
  for (const SequenceId id : ids) rig.cache->finish(id);
  rig.controller->collect();
  EXPECT_TRUE(source.open.empty()) << "every promotion that asked was done";
  EXPECT_EQ(refinements.buffer_bytes(), 0u);
  EXPECT_EQ((*store)->bytes(), 0u);
  EXPECT_EQ(rig.cache->allocated_bytes(), 0u);
  for (const auto& [how, count] : rig.stats().promotions) *moved += count;
  std::vector<Line> lines;
  for (const TransitionEvent& e : rig.events) {
    lines.emplace_back(e.step, e.sequence, e.cls, e.page, e.start, e.from, e.to, e.why, e.how, e.outcome, e.score);
  }
  return lines;
}

TEST(ScoredLifecycle, EqualRunsGiveEqualTracesAndNothingIsLeftBehind) {
  uint64_t moved = 0;
  for (uint32_t seed = 1; seed <= 24 / testing::kSanitizerSlowdown + 1; ++seed) {
    const std::vector<Line> first = random_run(seed, &moved);
    const std::vector<char> elsewhere(seed * 1000);  // another heap
    EXPECT_EQ(first, random_run(seed, &moved)) << "seed " << seed;
    EXPECT_FALSE(first.empty());
  }
  EXPECT_GT(moved, 20u);
}

}  // namespace
}  // namespace varve::cache
