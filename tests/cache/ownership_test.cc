// Readers, conversions, and the failures that serving systems are known for.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "cache/cache.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::contains;
using testing::grow;
using testing::kRecentBytes;
using testing::kStale1Bytes;
using testing::kStripBytes;
using testing::make;
using testing::small_config;
using testing::two_class_config;

bool filled(const uint8_t* p, size_t bytes, uint8_t value) {
  return std::all_of(p, p + bytes, [&](uint8_t b) { return b == value; });
}

PageId page_at(const Cache& cache, SequenceId id, size_t index) { return cache.blocks(id, 0)[index].page; }
PageRef ref_at(const Cache& cache, SequenceId id, size_t index) { return cache.blocks(id, 0)[index].ref; }

Conversion begin(Cache& cache, PageId page, Tier to) {
  auto conversion = cache.retier(0, page, to);
  EXPECT_TRUE(conversion.ok()) << conversion.status().message();
  return std::move(conversion).value();
}

/// 32 recent slots in slabs of 2, so that a freed slot usually stays allocated beside a held one.
Config slab_config() {
  Config config = small_config(32);
  config.slab_bytes = 2 * kRecentBytes;
  return config;
}

// serving: in-flight step writes into freed pages.
TEST(Readers, AbortWithAStepInFlightKeepsItsPagesAndStrips) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  ASSERT_OK(cache->reserve(id, 4));
  const PageRef open = ref_at(*cache, id, 1);
  uint8_t* rows = cache->slot(0, open);
  uint8_t* strip = cache->strip(id, 0);
  ReadGuard step = cache->read({{id}});
  cache->finish(id);  // the client went away in the middle of the step
  cache->finish(id);  // and is told so twice
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 2u);
  // Whoever comes now gets other slots, whatever the step still writes.
  const SequenceId next = *cache->start();
  ASSERT_OK(grow(*cache, next, 8));
  std::memset(cache->slot(0, ref_at(*cache, next, 0)), 0x11, kRecentBytes);
  std::memset(cache->strip(next, 0), 0x22, kStripBytes);
  ASSERT_EQ(cache->slot(0, open), rows);
  std::memset(rows, 0x33, kRecentBytes);
  std::memset(strip, 0x33, kStripBytes);
  EXPECT_TRUE(filled(cache->slot(0, ref_at(*cache, next, 0)), kRecentBytes, 0x11));
  EXPECT_TRUE(filled(cache->strip(next, 0), kStripBytes, 0x22));
  EXPECT_EQ(cache->settle(id, 4).code(), StatusCode::kInvalidArgument);  // the late half of the step
  ASSERT_OK(cache->check());
  step = {};
  EXPECT_EQ(cache->slot(0, open), nullptr);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 0u);
  ASSERT_OK(cache->check());
}

TEST(Readers, FreedSlotsAndStripsArePoisoned) {
  auto cache = make(slab_config());
  const SequenceId a = *cache->start(), b = *cache->start();
  ASSERT_OK(grow(*cache, a, 4));
  ASSERT_OK(grow(*cache, b, 4));
  uint8_t* freed = cache->slot(0, ref_at(*cache, a, 0));
  EXPECT_TRUE(filled(freed, kRecentBytes, kPoison));  // new memory too: nobody may rely on zeros
  EXPECT_TRUE(filled(cache->strip(a, 0), kStripBytes, kPoison));
  std::memset(freed, 0x44, kRecentBytes);
  cache->finish(a);
  // The slab lives on with b in it.
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_total, 2u);
  EXPECT_TRUE(filled(freed, kRecentBytes, kPoison));
}

TEST(Readers, OverlappingGuardsReleaseOnceEach) {
  auto cache = make(slab_config());
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 8));
  const SequenceId b = *cache->fork(a);
  const std::vector<SequenceId> both = {a, b, a};
  ReadGuard first = cache->read(both);
  ReadGuard second = cache->read({{b}});
  cache->finish(a);
  cache->finish(b);
  ASSERT_OK(cache->check());
  first = std::move(second);  // drops the first guard, keeps the second
  ASSERT_OK(cache->check());
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 2u);
  second = {};
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 2u);
  first = {};
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(Readers, WindowReleaseWhileAReaderHoldsThePage) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 6));
  const PageRef oldest = cache->blocks(id, 1)[0].ref;
  ReadGuard step = cache->read({{id}});
  std::memset(cache->slot(1, oldest), 0x55, 192);
  ASSERT_OK(grow(*cache, id, 6));
  EXPECT_GT(cache->blocks(id, 1).front().start, 0);
  ASSERT_NE(cache->slot(1, oldest), nullptr);
  EXPECT_TRUE(filled(cache->slot(1, oldest), 192, 0x55));
  ASSERT_OK(cache->check());
  step = {};
  EXPECT_EQ(cache->slot(1, oldest), nullptr);
  ASSERT_OK(cache->check());
}

TEST(Readers, TruncateWhileAReaderHoldsThePage) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  const PageRef last = ref_at(*cache, id, 1);
  ReadGuard step = cache->read({{id}});
  ASSERT_OK(cache->truncate(id, 4));
  ASSERT_OK(grow(*cache, id, 4));
  EXPECT_NE(ref_at(*cache, id, 1), last);
  EXPECT_NE(cache->slot(0, last), nullptr);
  step = {};
  EXPECT_EQ(cache->slot(0, last), nullptr);
}

TEST(Readers, GuardsAndConversionsMayOutliveTheCache) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  uint8_t* rows = cache->slot(0, ref_at(*cache, id, 1));
  ReadGuard guard = cache->read({{id}});
  Conversion conversion = begin(*cache, page_at(*cache, id, 0), Tier::kStale1);
  cache.reset();
  std::memset(rows, 1, kRecentBytes);
  std::memset(conversion.dst(), 1, kStale1Bytes);
  EXPECT_TRUE(conversion.publish());
  guard = {};
}

// serving: block id used as pool index after offload; differential-kv: restore old data over a reused slot.
TEST(Slots, StaleGenerationIsDetected) {
  auto cache = make(slab_config());
  const SequenceId keep = *cache->start();
  ASSERT_OK(grow(*cache, keep, 1));
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 1));
  const PageRef old = ref_at(*cache, a, 0);
  cache->finish(a);
  EXPECT_EQ(cache->slot(0, old), nullptr);
  const SequenceId b = *cache->start();
  ASSERT_OK(grow(*cache, b, 1));
  const PageRef now = ref_at(*cache, b, 0);
  EXPECT_EQ(now.slot, old.slot);
  EXPECT_NE(now.generation, old.generation);
  EXPECT_EQ(cache->slot(0, old), nullptr);
  EXPECT_NE(cache->slot(0, now), nullptr);
}

TEST(Slots, GenerationsOutliveTheirSlab) {
  auto cache = make(small_config(8));
  std::set<uint32_t> generations;
  for (int i = 0; i < 5; ++i) {
    const SequenceId id = *cache->start();
    ASSERT_OK(grow(*cache, id, 1));
    EXPECT_TRUE(generations.insert(ref_at(*cache, id, 0).generation).second);
    cache->finish(id);
    EXPECT_EQ(cache->allocated_bytes(), 0u);
  }
}

TEST(Pages, AReusedRecordDoesNotAnswerToItsOldId) {
  auto cache = make(small_config(8));
  std::set<PageId> ids;
  for (int i = 0; i < 5; ++i) {
    const SequenceId id = *cache->start();
    ASSERT_OK(grow(*cache, id, 4));
    const PageId page = page_at(*cache, id, 0);
    EXPECT_TRUE(ids.insert(page).second);
    for (const PageId old : ids) EXPECT_EQ(cache->page(old).has_value(), old == page);
    for (const PageId old : ids) {
      if (old != page) {
        EXPECT_EQ(cache->retier(0, old, Tier::kStale1).status().code(), StatusCode::kInvalidArgument);
      }
    }
    cache->finish(id);
  }
  EXPECT_EQ(cache->retier(0, 0, Tier::kStale1).status().code(), StatusCode::kInvalidArgument);
}

TEST(Retier, RefusesWhatItMust) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 6));
  const PageId sealed = page_at(*cache, id, 0), open = page_at(*cache, id, 1);
  const auto refused = [&](size_t cls, PageId page, Tier to, const char* why) {
    const Status status = cache->retier(cls, page, to).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << why;
    EXPECT_TRUE(contains(status.message(), why)) << status.message();
  };
  refused(0, open, Tier::kStale1, "not sealed");
  refused(0, sealed, Tier::kRecent, "already in tier recent");
  refused(0, sealed, Tier::kAnchor, "does not use tier anchor");
  refused(1, sealed, Tier::kAnchor, "stale or of another class");
  refused(2, sealed, Tier::kStale1, "no such class");
  refused(0, sealed, Tier::kCount, "no such class");
  const Conversion conversion = begin(*cache, sealed, Tier::kStale1);
  refused(0, sealed, Tier::kStale2, "already converting to stale1");
  ASSERT_OK(cache->check());
}

TEST(Retier, NoRoomIsExhaustionAndLeavesNoTrace) {
  Config config = small_config(8);
  config.classes[0].slot_bytes[static_cast<size_t>(Tier::kAnchor)] = kRecentBytes;
  auto cache = make(config);
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 28));
  const size_t allocated = cache->allocated_bytes();
  const Status status = cache->retier(0, page_at(*cache, id, 0), Tier::kAnchor).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status.message(), "class 0 anchor")) << status.message();
  EXPECT_EQ(cache->allocated_bytes(), allocated);
  EXPECT_FALSE(cache->page(page_at(*cache, id, 0))->converting);
  ASSERT_OK(cache->check());
}

TEST(Retier, PublishesOnceForEveryHolder) {
  auto cache = make(small_config(8));
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 6));
  const SequenceId b = *cache->fork(a);
  Conversion conversion = begin(*cache, page_at(*cache, a, 0), Tier::kStale1);
  EXPECT_TRUE(cache->blocks(b, 0)[0].converting);
  EXPECT_EQ(ref_at(*cache, b, 0).tier, Tier::kRecent);  // readers see the source until publication
  const SequenceId c = *cache->fork(b);                 // a holder that comes during the conversion
  EXPECT_TRUE(conversion.publish());
  EXPECT_FALSE(conversion.active());
  EXPECT_FALSE(conversion.publish());
  for (const SequenceId id : {a, b, c}) {
    EXPECT_EQ(ref_at(*cache, id, 0).tier, Tier::kStale1);
    EXPECT_EQ(ref_at(*cache, id, 0), ref_at(*cache, a, 0));
    EXPECT_FALSE(cache->blocks(id, 0)[0].converting);
  }
  EXPECT_EQ(cache->pool(0, Tier::kStale1).slots_live, 1u);
  ASSERT_OK(cache->check());
}

TEST(Retier, SourceIsFreedAfterItsReaders) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageRef source = ref_at(*cache, id, 0);
  std::memset(cache->slot(0, source), 0x66, kRecentBytes);
  ReadGuard step = cache->read({{id}});
  Conversion conversion = begin(*cache, page_at(*cache, id, 0), Tier::kStale1);
  EXPECT_TRUE(conversion.publish());
  ASSERT_NE(cache->slot(0, source), nullptr);
  EXPECT_TRUE(filled(cache->slot(0, source), kRecentBytes, 0x66));
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 1u);
  step = {};
  EXPECT_EQ(cache->slot(0, source), nullptr);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_total, 0u);
  ASSERT_OK(cache->check());
}

TEST(Retier, AbandonLeavesNoTrace) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const auto before = cache->blocks(id, 0);
  const size_t allocated = cache->allocated_bytes();
  {
    const Conversion conversion = begin(*cache, before[0].page, Tier::kStale1);
    EXPECT_EQ(cache->pool(0, Tier::kStale1).slots_converting, 1u);
    std::memset(conversion.dst(), 0x77, kStale1Bytes);
    ASSERT_OK(cache->check());
  }
  EXPECT_EQ(cache->allocated_bytes(), allocated);
  EXPECT_EQ(ref_at(*cache, id, 0), before[0].ref);
  EXPECT_FALSE(cache->blocks(id, 0)[0].converting);
  ASSERT_OK(cache->check());
  EXPECT_TRUE(cache->retier(0, before[0].page, Tier::kStale2)->publish());  // and it can start again
}

// serving: double free on abort plus async transfer.
TEST(Retier, PublishAfterTheLastOwnerIsGoneFreesBothSlots) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId page = page_at(*cache, id, 0);
  Conversion conversion = begin(*cache, page, Tier::kStale1);
  const PageRef from = conversion.from(), to = conversion.to();
  cache->finish(id);
  // The record and both slots wait for the conversion, and the id is not reused.
  EXPECT_EQ(cache->page(page)->requests, 0u);
  EXPECT_EQ(cache->page(page)->holder, 0u);
  EXPECT_NE(cache->slot(0, from), nullptr);
  EXPECT_NE(cache->slot(0, to), nullptr);
  EXPECT_EQ(cache->retier(0, page, Tier::kStale2).status().code(), StatusCode::kInvalidArgument);
  ASSERT_OK(cache->check());
  EXPECT_FALSE(conversion.publish());
  EXPECT_FALSE(cache->page(page).has_value());
  EXPECT_EQ(cache->slot(0, from), nullptr);
  EXPECT_EQ(cache->slot(0, to), nullptr);
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(Retier, AbandonAfterTheLastOwnerIsGoneFreesBothSlots) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  std::optional<Conversion> conversion = begin(*cache, page_at(*cache, id, 0), Tier::kStale1);
  cache->finish(id);
  conversion.reset();
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(Retier, ForkThenFinishTheParentThenConvert) {
  auto cache = make(small_config(8));
  const SequenceId parent = *cache->start();
  ASSERT_OK(grow(*cache, parent, 8));
  const SequenceId child = *cache->fork(parent);
  Conversion first = begin(*cache, page_at(*cache, parent, 0), Tier::kStale1);
  cache->finish(parent);
  EXPECT_FALSE(cache->blocks(child, 0)[0].shared);
  EXPECT_TRUE(first.publish());  // the child still owns the page
  EXPECT_EQ(ref_at(*cache, child, 0).tier, Tier::kStale1);
  Conversion second = begin(*cache, page_at(*cache, child, 1), Tier::kStale2);
  EXPECT_TRUE(second.publish());
  EXPECT_EQ(ref_at(*cache, child, 1).tier, Tier::kStale2);
  ASSERT_OK(cache->check());
  cache->finish(child);
  EXPECT_EQ(cache->allocated_bytes(), 0u);
}

TEST(Retier, MovingAConversionMovesItsDuty) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  Conversion a = begin(*cache, page_at(*cache, id, 0), Tier::kStale1);
  Conversion b = begin(*cache, page_at(*cache, id, 1), Tier::kStale1);
  a = std::move(b);  // abandons the first page's conversion
  EXPECT_FALSE(b.active());
  EXPECT_EQ(b.src(), nullptr);
  EXPECT_EQ(b.dst(), nullptr);
  EXPECT_FALSE(cache->blocks(id, 0)[0].converting);
  EXPECT_TRUE(cache->blocks(id, 0)[1].converting);
  EXPECT_TRUE(a.publish());
  ASSERT_OK(cache->check());
}

TEST(Retier, ThereAndBack) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId page = page_at(*cache, id, 0);
  for (const Tier to : {Tier::kStale1, Tier::kStale2, Tier::kRecent, Tier::kStale2}) {
    Conversion conversion = begin(*cache, page, to);
    EXPECT_EQ(conversion.to().tier, to);
    EXPECT_TRUE(conversion.publish());
    EXPECT_EQ(page_at(*cache, id, 0), page);  // the logical page keeps its name
    EXPECT_EQ(ref_at(*cache, id, 0).tier, to);
    ASSERT_OK(cache->check());
  }
}

TEST(KnownFailures, DoubleFinishOfASharedPageFreesItOnce) {
  auto cache = make(slab_config());
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 4));
  const SequenceId b = *cache->fork(a);
  cache->finish(a);
  cache->finish(a);
  cache->finish(a);
  EXPECT_EQ(cache->blocks(b, 0).size(), 1u);
  EXPECT_NE(cache->slot(0, ref_at(*cache, b, 0)), nullptr);
  ASSERT_OK(cache->check());
}

// serving: same page freed twice in one batch.
TEST(KnownFailures, OnePageFreedByTwoSequencesOfABatch) {
  auto cache = make(slab_config());
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 8));
  std::vector<SequenceId> batch = {a, *cache->fork(a), *cache->fork(a)};
  const SequenceId bystander = *cache->start();
  ASSERT_OK(grow(*cache, bystander, 4));
  for (const SequenceId id : batch) cache->finish(id);
  const PoolStats recent = cache->pool(0, Tier::kRecent);
  EXPECT_EQ(recent.slots_live, 1u);
  EXPECT_EQ(recent.slots_free + recent.slots_live + recent.slots_converting, recent.slots_total);
  ASSERT_OK(cache->check());
}

// serving: prompt larger than the pool hangs the queue.
TEST(KnownFailures, APromptLargerThanThePoolIsRefusedAndTheNextWorks) {
  auto cache = make(small_config(8));
  const SequenceId huge = *cache->start();
  for (const int tokens : {29, 1000, 2000000000}) {
    const Status status = cache->reserve(huge, tokens);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(contains(status.message(), std::to_string(tokens) + " tokens")) << status.message();
  }
  EXPECT_EQ(cache->allocated_bytes(), kStripBytes);
  cache->finish(huge);
  const SequenceId next = *cache->start();
  ASSERT_OK(grow(*cache, next, 28));
  ASSERT_OK(cache->check());
}

// serving: preemption livelock at a full pool.
TEST(KnownFailures, AFullPoolRefusesInsteadOfPreempting) {
  // Two sequences that both want the last page: one gets it, the other is told so every time, nobody loses tokens.
  auto cache = make(small_config(8));
  const SequenceId a = *cache->start(), b = *cache->start();
  ASSERT_OK(grow(*cache, a, 16));
  ASSERT_OK(grow(*cache, b, 8));
  ASSERT_OK(cache->reserve(a, 4));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache->reserve(b, 4).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->length(a), 16);
  EXPECT_EQ(cache->length(b), 8);
  ASSERT_OK(cache->settle(a, 4));
  EXPECT_EQ(cache->reserve(b, 4).code(), StatusCode::kResourceExhausted);
  cache->finish(a);
  ASSERT_OK(cache->reserve(b, 4));
}

TEST(KnownFailures, PartialAllocationAcrossClassesIsNeverVisible) {
  // The full class has room, the sliding one does not: neither grows.
  Config config = small_config(8);
  ClassConfig large = config.classes[0];
  large.slot_bytes = {4 * kRecentBytes, 0, 0, 0};
  large.strip_bytes = 0;
  config.classes.push_back(large);
  config.budget_bytes = 6 * kRecentBytes;
  auto cache = make(config);
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const size_t allocated = cache->allocated_bytes();
  EXPECT_EQ(cache->reserve(id, 1).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->blocks(id, 0).size(), 1u);
  EXPECT_EQ(cache->blocks(id, 1).size(), 1u);
  EXPECT_EQ(cache->allocated_bytes(), allocated);
  ASSERT_OK(cache->check());
}

}  // namespace
}  // namespace varve::cache
