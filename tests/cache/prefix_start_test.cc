// The prefix cache's reference on pages, and sequences that start from pages instead of nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
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

constexpr size_t kSinkBytes = 16;

Config sink_config(size_t pages) {
  Config config = two_class_config(pages);
  config.classes[0].sink_bytes = kSinkBytes;
  return config;
}

/// What a sequence of the first `tokens` tokens would start from, taken from a live one.
PrefixPages prefix_of(Cache& cache, SequenceId id, int tokens) {
  PrefixPages prefix{tokens, {}, {}};
  for (size_t c = 0; c < cache.config().classes.size(); ++c) {
    const ClassConfig& cls = cache.config().classes[c];
    const int first = cls.window == 0 ? 0 : std::max(0, tokens - cls.window + 1) / cls.page_tokens;
    prefix.pages.emplace_back();
    for (int start = first * cls.page_tokens; start < tokens; start += cls.page_tokens) {
      prefix.pages[c].push_back(cache.page_at(id, c, start));
    }
    prefix.sinks.emplace_back(cache.strip(id, c), cls.sink_bytes);
  }
  return prefix;
}

TEST(CacheHold, APageOutlivesItsLastRequestAndGoesWithTheCache) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  const BlockEntry first = cache->blocks(id, 0)[0];
  std::memset(cache->slot(0, first.ref), 0x21, kRecentBytes);
  ASSERT_OK(cache->hold(0, first.page));
  EXPECT_TRUE(cache->blocks(id, 0)[0].cached);
  EXPECT_FALSE(cache->blocks(id, 0)[1].cached);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_cached, 0u);  // a sequence holds it too: it is live
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_live, 2u);
  cache->finish(id);
  ASSERT_OK(cache->check());
  PoolStats recent = cache->pool(0, Tier::kRecent);
  EXPECT_EQ(recent.slots_cached, 1u);
  EXPECT_EQ(recent.slots_live, 0u);
  EXPECT_EQ(cache->cached_bytes(), kRecentBytes);
  EXPECT_EQ(cache->cached_pages(), 1u);
  const PageInfo info = *cache->page(first.page);
  EXPECT_TRUE(info.cached);
  EXPECT_EQ(info.requests, 0u);
  EXPECT_EQ(info.holder, 0u);
  EXPECT_EQ(cache->slot(0, first.ref)[0], 0x21);
  cache->release(0, first.page);
  EXPECT_FALSE(cache->page(first.page).has_value());
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheHold, ReleasedTwiceOrWithoutAHoldChangesNothing) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  const PageId held = cache->blocks(id, 0)[0].page, other = cache->blocks(id, 0)[1].page;
  ASSERT_OK(cache->hold(0, held));
  cache->release(0, other);  // not held
  cache->release(1, held);   // no such class
  cache->release(0, 0);
  EXPECT_TRUE(cache->page(held)->cached);
  cache->release(0, held);
  cache->release(0, held);
  EXPECT_FALSE(cache->page(held)->cached);
  ASSERT_OK(cache->check());
  EXPECT_EQ(cache->blocks(id, 0).size(), 2u);
  cache->finish(id);
  cache->release(0, held);  // gone
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheHold, OnlySealedLivingPagesOnce) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 6));
  const PageId sealed = cache->blocks(id, 0)[0].page, open = cache->blocks(id, 0)[1].page;
  const auto refused = [&](size_t cls, PageId page, const char* why) {
    const Status status = cache->hold(cls, page);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << why;
    EXPECT_TRUE(contains(status.message(), why)) << status.message();
  };
  refused(0, open, "the page at 4 is not sealed");
  refused(1, sealed, "stale or of another class");
  refused(7, sealed, "stale or of another class");
  refused(0, 0, "stale");
  ASSERT_OK(cache->hold(0, sealed));
  refused(0, sealed, "holds it already");
  // Old ids are refused: the record is used again, the id is not.
  cache->release(0, sealed);
  cache->finish(id);
  const SequenceId next = *cache->start();
  ASSERT_OK(grow(*cache, next, 4));
  refused(0, sealed, "stale");
  ASSERT_OK(cache->check());
}

// serving: claim after a tier swap erased from the wrong list.
TEST(CacheHold, APageThatOnlyTheCacheOwnsIsConverted) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId page = cache->blocks(id, 0)[0].page;
  ASSERT_OK(cache->hold(0, page));
  cache->finish(id);
  for (const Tier to : {Tier::kStale1, Tier::kRecent, Tier::kStale2}) {
    auto conversion = cache->retier(0, page, to);
    ASSERT_OK(conversion.status());
    EXPECT_EQ(cache->pool(0, to).slots_converting, 1u);
    ASSERT_OK(cache->check());
    EXPECT_TRUE(conversion->publish());
    EXPECT_EQ(cache->page(page)->ref.tier, to);
    EXPECT_EQ(cache->pool(0, to).slots_cached, 1u);
    ASSERT_OK(cache->check());
  }
}

// serving: double free on abort plus async transfer.
TEST(CacheHold, EvictedDuringAConversionFreesBothSlotsAfterIt) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId page = cache->blocks(id, 0)[0].page;
  ASSERT_OK(cache->hold(0, page));
  auto conversion = std::move(cache->retier(0, page, Tier::kStale1)).value();
  cache->finish(id);
  ASSERT_OK(cache->check());
  cache->release(0, page);
  ASSERT_OK(cache->check());
  EXPECT_EQ(cache->hold(0, page).code(), StatusCode::kInvalidArgument);  // nobody can come back to it
  EXPECT_FALSE(conversion.publish());
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheHold, TheLastRequestGoesDuringAConversionThatTheCacheSurvives) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId page = cache->blocks(id, 0)[0].page;
  ASSERT_OK(cache->hold(0, page));
  auto conversion = std::move(cache->retier(0, page, Tier::kStale1)).value();
  cache->finish(id);
  EXPECT_TRUE(conversion.publish());
  EXPECT_EQ(cache->pool(0, Tier::kStale1).slots_cached, 1u);
  EXPECT_EQ(cache->cached_bytes(), kStale1Bytes);
  ASSERT_OK(cache->check());
}

// differential-kv: evict a block about to be read.
TEST(CacheHold, EvictedUnderAReaderDrains) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const BlockEntry block = cache->blocks(id, 0)[0];
  std::memset(cache->slot(0, block.ref), 0x31, kRecentBytes);
  ASSERT_OK(cache->hold(0, block.page));
  ReadGuard step = cache->read({{id}});
  cache->finish(id);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_cached, 1u);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 0u);
  cache->release(0, block.page);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_draining, 1u);
  ASSERT_NE(cache->slot(0, block.ref), nullptr);
  EXPECT_EQ(cache->slot(0, block.ref)[kRecentBytes - 1], 0x31);
  ASSERT_OK(cache->check());
  step = {};
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheHold, TruncateAndWindowReleaseLeaveTheCacheItsPages) {
  auto cache = make(two_class_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 4));
  const PageId full = cache->page_at(id, 0, 0), sliding = cache->page_at(id, 1, 0);
  ASSERT_OK(cache->hold(0, full));
  ASSERT_OK(cache->hold(1, sliding));
  ASSERT_OK(grow(*cache, id, 3));
  EXPECT_EQ(cache->page_at(id, 1, 0), 0u);  // left the window
  EXPECT_TRUE(cache->page(sliding).has_value());
  EXPECT_EQ(cache->pool(1, Tier::kRecent).slots_cached, 1u);
  const SequenceId other = *cache->start();
  ASSERT_OK(grow(*cache, other, 4));
  const PageId cut = cache->page_at(other, 0, 0);
  ASSERT_OK(cache->hold(0, cut));
  ASSERT_OK(cache->truncate(other, 0));
  EXPECT_TRUE(cache->page(cut)->cached);
  ASSERT_OK(grow(*cache, other, 4));
  EXPECT_NE(cache->page_at(other, 0, 0), cut);  // rewritten tokens get a page of their own
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, PagesAreReferencedInPlaceAndOnlyTheSinksCopied) {
  auto cache = make(sink_config(16));
  const SequenceId first = *cache->start();
  ASSERT_OK(grow(*cache, first, 9));
  std::memset(cache->strip(first, 0), 0x41, kStripBytes);
  auto conversion = std::move(cache->retier(0, cache->page_at(first, 0, 0), Tier::kStale1)).value();
  ASSERT_TRUE(conversion.publish());  // mixed tiers
  const size_t allocated = cache->allocated_bytes();
  auto second = cache->start(prefix_of(*cache, first, 8));
  ASSERT_OK(second.status());
  EXPECT_EQ(cache->allocated_bytes(), allocated + kStripBytes);
  EXPECT_EQ(cache->length(*second), 8);
  const auto a = cache->blocks(first, 0), b = cache->blocks(*second, 0);
  ASSERT_EQ(b.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(b[i].page, a[i].page);
    EXPECT_EQ(b[i].ref, a[i].ref);
    EXPECT_TRUE(b[i].shared);
  }
  EXPECT_EQ(b[0].ref.tier, Tier::kStale1);
  EXPECT_EQ(b[1].ref.tier, Tier::kRecent);
  const uint8_t* strip = cache->strip(*second, 0);
  EXPECT_TRUE(std::all_of(strip, strip + kSinkBytes, [](uint8_t x) { return x == 0x41; }));
  EXPECT_TRUE(std::all_of(strip + kSinkBytes, strip + kStripBytes, [](uint8_t x) { return x == kPoison; }));
  ASSERT_OK(cache->check());
  // The suffix is private.
  ASSERT_OK(grow(*cache, *second, 3));
  EXPECT_NE(cache->page_at(*second, 0, 8), cache->page_at(first, 0, 8));
  EXPECT_EQ(cache->blocks(*second, 1).front().start, 6);
  ASSERT_OK(cache->check());
  cache->finish(first);
  EXPECT_EQ(cache->blocks(*second, 0).size(), 3u);
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, NoTokensIsAPlainStart) {
  auto cache = make(sink_config(16));
  const auto id = cache->start(PrefixPages{0, {{}, {}}, {}});
  ASSERT_OK(id.status());
  EXPECT_EQ(cache->length(*id), 0);
  ASSERT_OK(grow(*cache, *id, 5));
  const auto child = cache->fork(*id, 0);
  ASSERT_OK(child.status());
  EXPECT_EQ(cache->length(*child), 0);
  EXPECT_TRUE(cache->blocks(*child, 0).empty());
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, EveryViolationSaysItsNumbersAndChangesNothing) {
  auto cache = make(sink_config(24));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 10));
  const size_t allocated = cache->allocated_bytes();
  const PrefixPages good = prefix_of(*cache, id, 8);
  const auto refused = [&](const PrefixPages& prefix, StatusCode code, const char* why) {
    const Status status = cache->start(prefix).status();
    EXPECT_EQ(status.code(), code) << why << ": " << status.message();
    EXPECT_TRUE(contains(status.message(), why)) << status.message();
    EXPECT_EQ(cache->sequences().size(), 1u);
    EXPECT_EQ(cache->allocated_bytes(), allocated);
    EXPECT_OK(cache->check());
  };
  const StatusCode bad = StatusCode::kInvalidArgument;
  PrefixPages p = good;
  p.tokens = -4;
  refused(p, bad, "of -4 tokens: a negative length");
  p.tokens = 6;
  refused(p, bad, "of 6 tokens: not a multiple of the page of 4 in class 0");
  p.tokens = std::numeric_limits<int>::max() / 4 * 4;
  refused(p, bad, "2 pages in class 0, needed are 536870911 from position 0");
  p = good;
  p.pages.pop_back();
  refused(p, bad, "pages of 1 and sinks of 2 classes, the cache has 2");
  p = good;
  p.sinks.clear();
  refused(p, bad, "sinks of 0 classes");
  p = good;
  p.sinks[0] = p.sinks[0].first(8);
  refused(p, bad, "8 bytes of sinks in class 0, which has 16");
  p = good;
  p.pages[0].pop_back();
  refused(p, bad, "1 pages in class 0, needed are 2 from position 0");
  p = good;
  p.pages[1].erase(p.pages[1].begin());
  refused(p, bad, "1 pages in class 1, needed are 2 from position 4");
  p = good;
  p.pages[0][1] = 12345;
  refused(p, bad, "page 12345 in class 0 is stale or of another class");
  p = good;
  p.pages[0][1] = good.pages[1][0];
  refused(p, bad, "stale or of another class");
  p = good;
  p.pages[0][1] = cache->page_at(id, 0, 8);
  refused(p, bad, "at 8 is not sealed");
  p = good;
  std::swap(p.pages[0][0], p.pages[0][1]);
  refused(p, StatusCode::kUnsupported, "was written for position 4, it cannot serve at 0");
}

// serving: context shift on quantised K. Keys are stored for their position; a page never moves to another.
TEST(CachePrefix, ContextShiftIsRefused) {
  auto cache = make(small_config(16));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 12));
  // Dropping the first page and sliding the rest down, as a context shift would.
  const PrefixPages shifted{8, {{cache->page_at(id, 0, 4), cache->page_at(id, 0, 8)}}, {{}}};
  const Status status = cache->start(shifted).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(contains(status.message(), "was written for position 4, it cannot serve at 0")) << status.message();
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, AFullPoolRefusesAndKeepsThePages) {
  auto cache = make(sink_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  while (cache->start().ok()) {
  }
  EXPECT_GT(cache->shortfall(), 0u);
  const PrefixPages prefix = prefix_of(*cache, id, 8);
  const Status status = cache->start(prefix).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status.message(), "start from a prefix of 8 tokens")) << status.message();
  EXPECT_FALSE(cache->blocks(id, 0)[0].shared);
  EXPECT_EQ(cache->fork(id, 8).status().code(), StatusCode::kResourceExhausted);
  ASSERT_OK(cache->check());
  cache->finish(cache->sequences().back());
  EXPECT_EQ(cache->shortfall(), 0u);
  ASSERT_OK(cache->start(prefix).status());
}

TEST(CachePrefix, ForkAtABoundarySharesExactlyThePrefix) {
  auto cache = make(sink_config(24));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 10));
  std::memset(cache->strip(id, 0), 0x51, kSinkBytes);
  const auto child = cache->fork(id, 8);
  ASSERT_OK(child.status());
  EXPECT_EQ(cache->length(*child), 8);
  EXPECT_EQ(cache->page_at(*child, 0, 4), cache->page_at(id, 0, 4));
  EXPECT_EQ(cache->page_at(*child, 0, 8), 0u);
  EXPECT_EQ(cache->strip(*child, 0)[kSinkBytes - 1], 0x51);
  ASSERT_OK(cache->check());

  const auto refused = [&](int tokens, StatusCode code, const char* why) {
    const Status status = cache->fork(id, tokens).status();
    EXPECT_EQ(status.code(), code) << tokens;
    EXPECT_TRUE(contains(status.message(), why)) << status.message();
  };
  refused(12, StatusCode::kInvalidArgument, "sequence 1 (10 tokens) at a prefix of 12 tokens: out of range");
  refused(-1, StatusCode::kInvalidArgument, "of -1 tokens: out of range");
  refused(10, StatusCode::kInvalidArgument, "not a multiple of the page of 4 in class 0");
  // At length 10 the pages below 4 have left the window of 5; the row at 4 reads from 0 on.
  refused(4, StatusCode::kUnsupported, "needs keys below 4, which left the window of 5 in class 1");
  EXPECT_EQ(cache->fork(12345, 4).status().code(), StatusCode::kInvalidArgument);
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, EveryBoundaryThatAForkAcceptsCanAttend) {
  // The same arithmetic as truncate(): a sequence may be cut to a boundary exactly when it can be forked there.
  for (int length = 1; length <= 24; ++length) {
    auto cache = make(two_class_config(32));
    const SequenceId id = *cache->start();
    for (int i = 0; i < length; ++i) ASSERT_OK(grow(*cache, id, 1));
    for (int tokens = 4; tokens <= length; tokens += 4) {
      const auto child = cache->fork(id, tokens);
      const SequenceId whole = *cache->fork(id);
      EXPECT_EQ(child.ok(), cache->truncate(whole, tokens).ok()) << length << " to " << tokens;
      cache->finish(whole);
      if (!child.ok()) continue;
      EXPECT_LE(cache->blocks(*child, 1).front().start, std::max(0, tokens - 5 + 1));
      ASSERT_OK(grow(*cache, *child, 1));
      ASSERT_OK(cache->check());
      cache->finish(*child);
    }
  }
}

TEST(CachePrefix, TruncatingAStartedSequenceKnowsItsWindow) {
  auto cache = make(two_class_config(24));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 12));
  const SequenceId hit = *cache->fork(id, 12);
  EXPECT_EQ(cache->truncate(hit, 8).code(), StatusCode::kUnsupported);
  EXPECT_EQ(cache->truncate(hit, 10).code(), StatusCode::kUnsupported);
  ASSERT_OK(grow(*cache, hit, 2));
  ASSERT_OK(cache->truncate(hit, 12));
  ASSERT_OK(cache->check());
  cache->finish(id);
  cache->finish(id);  // aborted twice
  EXPECT_EQ(cache->length(hit), 12);
  ASSERT_OK(grow(*cache, hit, 6));
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, AbortedTwiceInTheMiddleOfItsFirstStep) {
  auto cache = make(sink_config(24));
  const SequenceId id = *cache->start();
  ASSERT_OK(grow(*cache, id, 8));
  for (const size_t c : {0, 1}) {
    for (const BlockEntry& b : cache->blocks(id, c)) ASSERT_OK(cache->hold(c, b.page));
  }
  const SequenceId hit = *cache->start(prefix_of(*cache, id, 8));
  cache->finish(id);
  ASSERT_OK(cache->reserve(hit, 3));
  const PageRef open = cache->blocks(hit, 0).back().ref, shared = cache->blocks(hit, 0).front().ref;
  std::memset(cache->slot(0, shared), 0x61, kRecentBytes);
  ReadGuard step = cache->read({{hit}});
  cache->finish(hit);
  cache->finish(hit);
  ASSERT_OK(cache->check());
  std::memset(cache->slot(0, open), 0x62, kRecentBytes);  // the step's late rows
  EXPECT_EQ(cache->settle(hit, 3).code(), StatusCode::kInvalidArgument);
  step = {};
  EXPECT_EQ(cache->slot(0, open), nullptr);
  ASSERT_NE(cache->slot(0, shared), nullptr);
  EXPECT_EQ(cache->slot(0, shared)[kRecentBytes - 1], 0x61);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_cached, 2u);
  EXPECT_EQ(cache->pool(0, Tier::kRecent).slots_live, 0u);
  ASSERT_OK(cache->check());
}

TEST(CachePrefix, SinksLargerThanTheirStripAreRefusedAtCreation) {
  Config config = small_config(8);
  config.classes[0].sink_bytes = kStripBytes + 1;
  const Status status = Cache::create(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), "65 bytes, the strip that contains them has 64")) << status.message();
}

}  // namespace
}  // namespace varve::cache
