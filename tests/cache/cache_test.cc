// The operations of Cache one by one.

#include "cache/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

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

TEST(CacheCreate, RefusesContradictions) {
  Config config = small_config(8);
  config.classes[0].page_tokens = 0;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes[0].slot_bytes[0] = 0;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes[0].tile_tokens = 3;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes[0].window = -1;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes.clear();
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);
}

TEST(CacheCreate, BudgetMustHoldOnePageAndSaysTheNumbers) {
  Config config = small_config(8);
  config.budget_bytes = kRecentBytes + kStripBytes + kStale1Bytes - 1;
  const Status status = Cache::create(config).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status.message(), "704")) << status.message();
  EXPECT_TRUE(contains(status.message(), "703")) << status.message();

  config.budget_bytes += 1;
  EXPECT_TRUE(Cache::create(config).ok());

  config.classes[0].slot_bytes[0] = std::numeric_limits<size_t>::max();
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kResourceExhausted);
  config = small_config(8);
  config.classes[0].strip_bytes = std::numeric_limits<size_t>::max();
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kResourceExhausted);
}

TEST(CacheAppend, PagesFillSealAndReport) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(cache->reserve(id, 6));
  auto blocks = cache->blocks(id, 0);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].tokens, 0);
  EXPECT_FALSE(blocks[0].sealed);
  ASSERT_OK(cache->settle(id, 6));
  blocks = cache->blocks(id, 0);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].tokens, 4);
  EXPECT_TRUE(blocks[0].sealed);
  EXPECT_EQ(blocks[1].start, 4);
  EXPECT_EQ(blocks[1].tokens, 2);
  EXPECT_FALSE(blocks[1].sealed);
  EXPECT_EQ(cache->length(id), 6);
  EXPECT_EQ(cache->allocated_bytes(), 2 * kRecentBytes + kStripBytes);
  EXPECT_EQ(cache->strip_bytes_live(), kStripBytes);
  ASSERT_OK(cache->check());
  cache->finish(id);
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheAppend, ReserveIsNotCumulativeAndSettleIsBounded) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(cache->reserve(id, 4));
  ASSERT_OK(cache->reserve(id, 3));
  EXPECT_EQ(cache->blocks(id, 0).size(), 1u);
  EXPECT_EQ(cache->settle(id, 5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->settle(id, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->length(id), 0);
  ASSERT_OK(cache->settle(id, 4));
  EXPECT_EQ(cache->settle(id, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->reserve(id, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->reserve(id, std::numeric_limits<int>::max()).code(), StatusCode::kInvalidArgument);
}

TEST(CacheAppend, UnknownSequencesAreErrorsNotCrashes) {
  auto cache = make(two_class_config(8));
  const SequenceId id = *cache->start();
  cache->finish(id);
  for (const SequenceId bad : {SequenceId{0}, id, SequenceId{12345}}) {
    EXPECT_FALSE(cache->contains(bad));
    EXPECT_EQ(cache->reserve(bad, 1).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cache->settle(bad, 0).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cache->truncate(bad, 0).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cache->fork(bad).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cache->length(bad), 0);
    EXPECT_TRUE(cache->blocks(bad, 0).empty());
    EXPECT_EQ(cache->strip(bad, 0), nullptr);
    EXPECT_EQ(cache->shortfall(bad, 4), 0u);
    const ReadGuard guard = cache->read({{bad}});
    cache->finish(bad);
  }
  const SequenceId live = *cache->start();
  EXPECT_TRUE(cache->blocks(live, 7).empty());
  EXPECT_EQ(cache->strip(live, 7), nullptr);
  EXPECT_EQ(cache->strip(live, 1), nullptr);  // the sliding class has none
  EXPECT_EQ(cache->slot(7, {}), nullptr);
  EXPECT_EQ(cache->slot(0, {Tier::kCount, 0, 0}), nullptr);
  EXPECT_EQ(cache->slot(0, {Tier::kAnchor, 0, 0}), nullptr);
  EXPECT_EQ(cache->pool(7, Tier::kRecent).slots_total, 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheAppend, SlotsAreTakenLowestFirst) {
  Config config = small_config(64);
  config.slab_bytes = 4 * kRecentBytes;
  auto cache = make(config);
  const SequenceId a = *cache->start();
  ASSERT_OK(grow(*cache, a, 12));
  const SequenceId b = *cache->start();
  ASSERT_OK(grow(*cache, b, 4));
  EXPECT_EQ(cache->blocks(b, 0)[0].ref.slot, 3u);
  cache->finish(a);
  const SequenceId c = *cache->start();
  ASSERT_OK(grow(*cache, c, 8));
  EXPECT_EQ(cache->blocks(c, 0)[0].ref.slot, 0u);
  EXPECT_EQ(cache->blocks(c, 0)[1].ref.slot, 1u);
}

TEST(CacheRoom, FailedReservationChangesNothingAndSaysWho) {
  auto cache = make(two_class_config(8));
  const SequenceId a = *cache->start();
  const SequenceId b = *cache->start();
  ASSERT_OK(grow(*cache, a, 12));
  ASSERT_OK(grow(*cache, b, 2));
  const size_t allocated = cache->allocated_bytes();
  const auto before = cache->blocks(b, 1);
  const Status status = cache->reserve(b, 100);
  ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"reserving 100 tokens after 2 of sequence 2", "class 0 recent slots of 512 bytes",
                           "budget bytes", "by 2 sequences with", "class 0 recent: 4 slots", "class 1 recent"}) {
    EXPECT_TRUE(contains(status.message(), part)) << part << " not in: " << status.message();
  }
  EXPECT_TRUE(contains(status.message(), std::to_string(cache->budget_bytes())));
  EXPECT_EQ(cache->allocated_bytes(), allocated);
  EXPECT_EQ(cache->blocks(b, 0).size(), 1u);
  EXPECT_EQ(cache->blocks(b, 1).size(), before.size());
  EXPECT_EQ(cache->settle(b, 1).code(), StatusCode::kInvalidArgument);  // nothing was promised
  ASSERT_OK(cache->check());
}

TEST(CacheRoom, ShortfallPredictsReserve) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  for (const int tokens : {1, 4, 12, 24, 25, 28, 29, 1000}) {
    const size_t missing = cache->shortfall(id, tokens);
    EXPECT_EQ(cache->reserve(id, tokens).ok(), missing == 0) << tokens;
    ASSERT_OK(cache->truncate(id, 0));
  }
  // 8 recent slots, minus the strip and the conversion headroom, leave 7.
  EXPECT_EQ(cache->shortfall(id, 28), 0u);
  EXPECT_EQ(cache->shortfall(id, 29), 8 * kRecentBytes + kStripBytes + kStale1Bytes - cache->budget_bytes());
}

TEST(CacheRoom, HeadroomLetsADemotionHappenInAFullCache) {
  auto cache = make(small_config(8));
  EXPECT_EQ(cache->headroom_bytes(), kStale1Bytes);
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 28));
  ASSERT_EQ(cache->reserve(id, 1).code(), StatusCode::kResourceExhausted);
  auto conversion = cache->retier(0, cache->blocks(id, 0)[0].page, Tier::kStale1);
  ASSERT_OK(conversion.status());
  EXPECT_TRUE(conversion->publish());
  ASSERT_OK(cache->check());
  EXPECT_EQ(cache->shortfall(id, 1), 0u);
  ASSERT_OK(cache->reserve(id, 1));
}

TEST(CacheRoom, EmptySlabsGoBackToTheBudgetForOtherPools) {
  Config config = small_config(32);
  config.slab_bytes = 2 * kRecentBytes;
  auto cache = make(config);
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 16));
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_total, 4u);
  for (int i = 0; i < 4; ++i) {
    auto conversion = cache->retier(0, cache->blocks(id, 0)[static_cast<size_t>(i)].page, Tier::kStale1);
    ASSERT_OK(conversion.status());
    ASSERT_TRUE(conversion->publish());
    ASSERT_OK(cache->check());
  }
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_total, 0u);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slab_bytes, 0u);
  EXPECT_EQ(cache->pool(0, Tier::kStale1).slots_live, 4u);
  cache->finish(id);
  EXPECT_EQ(cache->allocated_bytes(), 0u);
}

TEST(CacheTruncate, ForgetsTheOpenPageWholePagesAndReservations) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 10));
  ASSERT_OK(cache->truncate(id, 9));
  EXPECT_EQ(cache->length(id), 9);
  EXPECT_EQ(cache->blocks(id, 0).size(), 3u);

  ASSERT_OK(cache->reserve(id, 8));
  EXPECT_EQ(cache->blocks(id, 0).size(), 5u);
  ASSERT_OK(cache->truncate(id, 9));
  EXPECT_EQ(cache->blocks(id, 0).size(), 3u);
  EXPECT_EQ(cache->settle(id, 1).code(), StatusCode::kInvalidArgument);

  const Status inside = cache->truncate(id, 7);
  EXPECT_EQ(inside.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(contains(inside.message(), "starts at 4")) << inside.message();
  ASSERT_OK(cache->truncate(id, 4));
  EXPECT_EQ(cache->blocks(id, 0).size(), 1u);
  EXPECT_EQ(cache->truncate(id, 5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->truncate(id, -1).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(cache->truncate(id, 0));
  EXPECT_TRUE(cache->blocks(id, 0).empty());
  ASSERT_OK(cache->check());
}

TEST(CacheTruncate, CodedTilesOfTheOpenPageAreNotExact) {
  Config config = small_config(8);
  config.classes[0].page_tokens = 8;
  config.classes[0].tile_tokens = 2;
  auto cache = make(config);
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 7));
  EXPECT_EQ(cache->truncate(id, 5).code(), StatusCode::kUnsupported);
  ASSERT_OK(cache->truncate(id, 6));
  ASSERT_OK(grow(*cache, id, 1));
  ASSERT_OK(cache->truncate(id, 2));
  EXPECT_EQ(cache->truncate(id, 1).code(), StatusCode::kUnsupported);
  ASSERT_OK(cache->truncate(id, 0));
}

TEST(CacheWindow, PagesLeaveWithTheWindowAndTruncateKnowsIt) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 7));
  EXPECT_EQ(cache->blocks(id, 1).front().start, 2);  // position 2 = 7 - window is still kept
  ASSERT_OK(grow(*cache, id, 2));
  EXPECT_EQ(cache->blocks(id, 1).front().start, 4);
  EXPECT_EQ(cache->blocks(id, 0).front().start, 0);
  // The row at position 8 needs keys from 4 on, the row at 7 from 3 on.
  EXPECT_EQ(cache->blocks(id, 1).size(), 3u);
  const Status gone = cache->truncate(id, 0);
  EXPECT_EQ(gone.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(contains(gone.message(), "window of 5")) << gone.message();
  EXPECT_EQ(cache->length(id), 9);
  ASSERT_OK(cache->truncate(id, 8));
  ASSERT_OK(cache->check());
}

TEST(CacheWindow, ForkKeepsOnlyTheWindow) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 9));
  const SequenceId child = *cache->fork(id);
  EXPECT_EQ(cache->blocks(child, 1).front().start, 4);
  EXPECT_EQ(cache->blocks(child, 1).size(), 3u);
  ASSERT_OK(grow(*cache, child, 6));
  EXPECT_EQ(cache->blocks(child, 1).front().start, 10);
  EXPECT_EQ(cache->blocks(id, 1).front().start, 4);
  ASSERT_OK(cache->check());
}

TEST(CacheFork, SharesSealedPagesAndCopiesTheRest) {
  auto cache = make(small_config(8));
  const SequenceId parent = *cache->start();
  ASSERT_OK(grow(*cache, parent, 6));
  std::memset(cache->strip(parent, 0), 0x11, kStripBytes);
  std::memset(cache->slot(0, cache->blocks(parent, 0)[1].ref), 0x22, kRecentBytes);
  ASSERT_OK(cache->reserve(parent, 8));  // a reservation is not inherited
  const SequenceId child = *cache->fork(parent);
  EXPECT_EQ(cache->length(child), 6);
  const auto p = cache->blocks(parent, 0), c = cache->blocks(child, 0);
  ASSERT_EQ(c.size(), 2u);
  EXPECT_EQ(c[0].page, p[0].page);
  EXPECT_TRUE(c[0].shared);
  EXPECT_NE(c[1].page, p[1].page);
  EXPECT_FALSE(c[1].shared);
  EXPECT_EQ(c[1].start, 4);
  EXPECT_EQ(std::memcmp(cache->slot(0, c[1].ref), cache->slot(0, p[1].ref), kRecentBytes), 0);
  EXPECT_EQ(std::memcmp(cache->strip(child, 0), cache->strip(parent, 0), kStripBytes), 0);
  EXPECT_NE(cache->strip(child, 0), cache->strip(parent, 0));
  std::memset(cache->slot(0, c[1].ref), 0x33, kRecentBytes);
  EXPECT_EQ(cache->slot(0, p[1].ref)[0], 0x22);
  const PageInfo info = *cache->page(c[0].page);
  EXPECT_EQ(info.requests, 2u);
  EXPECT_EQ(info.holder, parent);
  ASSERT_OK(cache->check());
}

TEST(CacheFork, WithoutRoomChangesNothing) {
  auto cache = make(small_config(8));
  const SequenceId parent = *cache->start();
  ASSERT_OK(grow(*cache, parent, 27));
  const size_t allocated = cache->allocated_bytes();
  const Status status = cache->fork(parent).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status.message(), "fork of sequence 1 (27 tokens)")) << status.message();
  EXPECT_EQ(cache->allocated_bytes(), allocated);
  EXPECT_FALSE(cache->blocks(parent, 0)[0].shared);
  EXPECT_EQ(cache->sequences().size(), 1u);
  ASSERT_OK(cache->check());
}

TEST(CachePage, AgeCountsFromTheShortestHolder) {
  auto cache = make(small_config(16));
  const SequenceId parent = *cache->start();
  ASSERT_OK(grow(*cache, parent, 8));
  const SequenceId child = *cache->fork(parent);
  ASSERT_OK(grow(*cache, parent, 8));
  ASSERT_OK(cache->truncate(child, 4));
  const PageId first = cache->blocks(parent, 0)[0].page;
  EXPECT_EQ(cache->page(first)->shortest_length, 4);
  EXPECT_EQ(cache->page(cache->blocks(parent, 0)[1].page)->shortest_length, 16);
  cache->finish(child);
  EXPECT_EQ(cache->page(first)->shortest_length, 16);
  cache->finish(parent);
  EXPECT_FALSE(cache->page(first).has_value());
}

/// Against trying it: the rows that may be settled at once and taken back, all but the first `keep`.
TEST(Cache, RevocableIsWhatTruncateCanTakeBack) {
  Config tiled = small_config(64);
  tiled.classes[0].page_tokens = 8;
  tiled.classes[0].tile_tokens = 4;
  for (const Config& config : {small_config(64), two_class_config(64), tiled}) {
    const int tile = config.classes[0].tile_tokens;
    for (int length = 1; length <= 26; ++length) {
      for (const int keep : {0, 1, 2}) {
        SCOPED_TRACE(::testing::Message() << config.classes.size() << " classes, tile " << tile << ", length " << length
                                          << ", keep " << keep);
        const auto try_it = [&](int rows) {
          const auto cache = make(config);
          const SequenceId id = cache->start().value();
          for (int i = 0; i < length; ++i) EXPECT_OK(grow(*cache, id, 1));
          if (tile != 0 && length / tile != (length + rows - 1) / tile) return false;
          EXPECT_OK(grow(*cache, id, rows));
          return cache->truncate(id, length + keep).ok();
        };
        const auto cache = make(config);
        const SequenceId id = cache->start().value();
        ASSERT_OK(grow(*cache, id, length));
        const int rows = cache->revocable(id, keep);
        ASSERT_GE(rows, keep);
        for (int n = keep + 1; n <= std::min(rows, keep + 20); ++n) EXPECT_TRUE(try_it(n)) << n;
        if (rows < keep + 20) {
          EXPECT_FALSE(try_it(rows + 1)) << rows;
        }
      }
    }
  }
  EXPECT_EQ(make(small_config(8))->revocable(7, 1), 0);
}

}  // namespace
}  // namespace varve::cache
