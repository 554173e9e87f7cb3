// The prefix index: what hits, what is kept, what goes first.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache/prefix/index.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::contains;
using testing::kRecentBytes;
using testing::kStale1Bytes;
using testing::make;
using testing::small_config;
using testing::two_class_config;

constexpr size_t kSinkBytes = 16;
constexpr size_t kPlenty = size_t{1} << 40;

using Tokens = std::vector<int32_t>;

/// `count` tokens that no other seed has.
Tokens text(int seed, int count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), seed * 1000);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Config with_sinks(Config config) {
  config.classes[0].sink_bytes = kSinkBytes;
  return config;
}

/// A cache with its index and what an engine does with them. Pages of 4 tokens; the sliding class, where there is one,
/// has pages of 2 and a window of 5.
struct Server {
  explicit Server(const Config& config, size_t quota = kPlenty, KeyFn key = prefix_key) : cache(make(config)) {
    auto created = PrefixIndex::create(cache.get(), {quota, "model", "codec", std::move(key)});
    EXPECT_TRUE(created.ok()) << created.status().message();
    index = std::move(created).value();
  }

  /// Admits a prompt and settles the rest of it, `step` tokens at a time.
  PrefixHit serve(const Tokens& prompt, std::string_view tenant = "", int step = 1) {
    const auto hit = index->start(prompt, tenant);
    EXPECT_TRUE(hit.ok()) << hit.status().message();
    if (!hit.ok()) return {};
    extend(hit->sequence, prompt, tenant, step);
    return *hit;
  }

  void extend(SequenceId id, const Tokens& all, std::string_view tenant = "", int step = 1) {
    while (cache->length(id) < static_cast<int>(all.size())) {
      const int past = cache->length(id);
      const int n = std::min(step, static_cast<int>(all.size()) - past);
      ASSERT_OK(cache->reserve(id, n));
      for (size_t c = 0; c < cache->config().classes.size(); ++c) {
        for (int p = past; p < past + n; ++p) {
          const PageId page = cache->page_at(id, c, p);
          const int row = p % cache->config().classes[c].page_tokens;
          std::memcpy(cache->slot(c, cache->page(page)->ref) + 4 * row, &all[static_cast<size_t>(p)], 4);
        }
      }
      if (past == 0 && cache->strip(id, 0) != nullptr) std::memset(cache->strip(id, 0), all[0] % 251, kSinkBytes);
      ASSERT_OK(cache->settle(id, n));
      ASSERT_OK(index->seal(id, all, tenant));
      check();
    }
  }

  void finish(SequenceId id) {
    cache->finish(id);
    index->trim();
    check();
  }

  void check() {
    EXPECT_OK(cache->check());
    EXPECT_OK(index->check());
    const PrefixStats s = index->stats();
    EXPECT_LE(s.cached_bytes + s.sinks_bytes, s.quota_bytes);
  }

  /// The tokens that the pages of the sequence say they hold, per class, from the first page on.
  Tokens read(SequenceId id, size_t c) {
    Tokens tokens;
    for (const BlockEntry& b : cache->blocks(id, c)) {
      for (int row = 0; row < b.tokens; ++row) {
        int32_t token = 0;
        std::memcpy(&token, cache->slot(c, b.ref) + 4 * row, 4);
        tokens.push_back(token);
      }
    }
    return tokens;
  }

  void demote(PageId page, Tier to) {
    const PageInfo info = *cache->page(page);
    auto conversion = cache->retier(info.cls, page, to);
    ASSERT_OK(conversion.status());
    std::memcpy(conversion->dst(), conversion->src(), 16);
    ASSERT_TRUE(conversion->publish());
  }

  std::unique_ptr<Cache> cache;
  std::unique_ptr<PrefixIndex> index;
};

TEST(PrefixKey, EveryFieldCountsAndNoneRunsIntoTheNext) {
  const Tokens ids = {1, 2, 3, 4}, other_ids = {1, 2, 3, 5}, shorter = {1, 2, 3};
  const KeyFields fields{"model", "codec", "tenant", "parent", ids};
  std::set<std::string> keys = {prefix_key(fields)};
  EXPECT_EQ(keys.begin()->size(), 64u);
  EXPECT_EQ(prefix_key(fields), *keys.begin());
  const auto differs = [&](const KeyFields& f) { EXPECT_TRUE(keys.insert(prefix_key(f)).second); };
  differs({"model2", "codec", "tenant", "parent", ids});
  differs({"model", "codec2", "tenant", "parent", ids});
  differs({"model", "codec", "tenant2", "parent", ids});
  differs({"model", "codec", "tenant", "parent2", ids});
  differs({"model", "codec", "tenant", "parent", other_ids});
  differs({"model", "codec", "tenant", "parent", shorter});
  // serving: hash domain shared by two fields.
  differs({"modelc", "odec", "tenant", "parent", ids});
  differs({"mode", "lcodec", "tenant", "parent", ids});
  differs({"model", "codec", "parent", "tenant", ids});
  differs({"model", "codec", "tenantparent", "", ids});
  differs({"model", "codec", "", "tenantparent", ids});
  differs({"", "modelcodec", "tenant", "parent", ids});
}

TEST(PrefixKey, IsTheDocumentedHash) {
  // Computed with Python: hashlib.sha256 over the fields as key.h describes them.
  const Tokens ids = {1, -2, 300000};
  EXPECT_EQ(prefix_key({"m", "c", "t", "p", ids}), "9168034810452e942b2db0c38e3661de3a8a804b1655db01d4e9e34023ce775a");
}

TEST(PrefixCreate, RefusesWhatWouldMixModels) {
  auto cache = make(small_config(8));
  EXPECT_EQ(PrefixIndex::create(nullptr, {1, "m", "c"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PrefixIndex::create(cache.get(), {1, "", "c"}).status().code(), StatusCode::kInvalidArgument);
  const Status status = PrefixIndex::create(cache.get(), {1, "m", ""}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(status.message(), "codec fingerprint 0 characters")) << status.message();
  Config config = two_class_config(8);
  config.classes[0].page_tokens = 1 << 20;
  config.classes[1].page_tokens = (1 << 20) - 1;
  auto odd = make(config);
  EXPECT_EQ(PrefixIndex::create(odd.get(), {1, "m", "c"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(PrefixHits, ASecondPromptReferencesTheFirstOnesPages) {
  Server s(with_sinks(small_config(16)));
  const Tokens prompt = text(1, 10);
  const PrefixHit cold = s.serve(prompt);
  EXPECT_EQ(cold.tokens, 0);
  EXPECT_EQ(cold.pages, 0u);
  const size_t allocated = s.cache->allocated_bytes();
  const PrefixHit hit = *s.index->start(prompt, "");
  EXPECT_EQ(hit.tokens, 8);
  EXPECT_EQ(hit.lost_tokens, 0);
  EXPECT_EQ(hit.pages, 2u);
  EXPECT_EQ(s.cache->allocated_bytes(), allocated + testing::kStripBytes);  // no copy but the strip
  EXPECT_EQ(s.cache->page_at(hit.sequence, 0, 4), s.cache->page_at(cold.sequence, 0, 4));
  EXPECT_EQ(std::memcmp(s.cache->strip(hit.sequence, 0), s.cache->strip(cold.sequence, 0), kSinkBytes), 0);
  s.extend(hit.sequence, prompt);
  EXPECT_EQ(s.read(hit.sequence, 0), prompt);
  const PrefixStats stats = s.index->stats();
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_EQ(stats.bound_pages, 2u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.hit_tokens, 8u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.sinks_bytes, kSinkBytes);
  EXPECT_EQ(stats.cached_bytes, 0u);  // everything is in use
}

// serving: every format x {cold, prefix hit, chunked prefill, ...}: every length, every remainder, every step size.
TEST(PrefixHits, PromptLengthsOverEveryRemainderOfThePage) {
  const Tokens base = text(1, 40);
  const auto cut = [&](int n) { return Tokens(base.begin(), base.begin() + n); };
  const auto one = [&](bool sliding, int first, int step, int length) {
    SCOPED_TRACE(std::to_string(first) + " in steps of " + std::to_string(step) + ", then " + std::to_string(length));
    Server s(with_sinks(sliding ? two_class_config(24) : small_config(24)));
    s.finish(s.serve(cut(first), "", step).sequence);
    const PrefixHit hit = *s.index->start(cut(length), "");
    EXPECT_EQ(hit.tokens + hit.lost_tokens, std::min(first, length - 1) / 4 * 4);  // never the prompt's last token
    const bool windows_complete = !sliding || step == 1;
    EXPECT_TRUE(hit.lost_tokens == 0 || !windows_complete);
    s.extend(hit.sequence, cut(length));
    EXPECT_EQ(s.read(hit.sequence, 0), cut(length));
    const Tokens tail = sliding ? s.read(hit.sequence, 1) : cut(length);
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), base.begin() + length - static_cast<ptrdiff_t>(tail.size())));
    s.finish(hit.sequence);
  };
  for (const bool sliding : {false, true}) {
    for (int first = 1; first <= 13; ++first) {
      for (int step = 1; step <= 3; ++step) {
        for (int length = 1; length <= 14; ++length) one(sliding, first, step, length);
      }
    }
  }
}

TEST(PrefixHits, AnEmptyPromptIsAPlainStart) {
  Server s(small_config(8));
  const auto hit = s.index->start({}, "");
  ASSERT_OK(hit.status());
  EXPECT_EQ(hit->tokens, 0);
  EXPECT_EQ(s.index->stats().misses, 1u);
}

TEST(PrefixHits, MixedTiersAreTakenAsTheyAre) {
  Server s(small_config(16));
  const Tokens prompt = text(1, 17);
  const PrefixHit cold = s.serve(prompt);
  s.demote(s.cache->page_at(cold.sequence, 0, 0), Tier::kStale2);
  s.demote(s.cache->page_at(cold.sequence, 0, 8), Tier::kStale1);
  const PageId last = s.cache->page_at(cold.sequence, 0, 12);
  s.finish(cold.sequence);
  s.demote(last, Tier::kStale1);  // only the cache owns it now
  const PrefixHit hit = s.serve(prompt);
  EXPECT_EQ(hit.tokens, 16);
  std::vector<Tier> tiers;
  for (const BlockEntry& b : s.cache->blocks(hit.sequence, 0)) tiers.push_back(b.ref.tier);
  EXPECT_EQ(tiers, (std::vector{Tier::kStale2, Tier::kRecent, Tier::kStale1, Tier::kStale1, Tier::kRecent}));
  EXPECT_EQ(s.read(hit.sequence, 0), prompt);
}

TEST(PrefixHits, TwoRequestsOnOnePrefixAtOnce) {
  Server s(with_sinks(two_class_config(24)));
  const Tokens shared = text(1, 12);
  s.finish(s.serve(shared + text(2, 1)).sequence);
  const PrefixHit a = *s.index->start(shared + text(3, 5), ""), b = *s.index->start(shared + text(4, 7), "");
  EXPECT_EQ(a.tokens, 12);
  EXPECT_EQ(b.tokens, 12);
  EXPECT_EQ(s.cache->page_at(a.sequence, 0, 8), s.cache->page_at(b.sequence, 0, 8));
  EXPECT_EQ(s.cache->requests(s.cache->page_at(a.sequence, 0, 8)), 2u);
  s.extend(a.sequence, shared + text(3, 5));
  s.extend(b.sequence, shared + text(4, 7));
  EXPECT_EQ(s.read(a.sequence, 0), shared + text(3, 5));
  EXPECT_EQ(s.read(b.sequence, 0), shared + text(4, 7));
  s.finish(a.sequence);
  EXPECT_EQ(s.read(b.sequence, 0), shared + text(4, 7));
}

// serving: mixed batch (one hit, one miss) equals solo runs.
TEST(PrefixHits, AHitBesideAMissReadsWhatColdRunsRead) {
  const Tokens one = text(1, 11) + text(2, 6), two = text(3, 14);
  Server solo_one(two_class_config(32)), solo_two(two_class_config(32)), batch(two_class_config(32));
  const SequenceId cold_one = solo_one.serve(one).sequence, cold_two = solo_two.serve(two).sequence;
  batch.finish(batch.serve(text(1, 11) + text(9, 2)).sequence);
  const PrefixHit hit = *batch.index->start(one, ""), miss = *batch.index->start(two, "");
  EXPECT_EQ(hit.tokens, 8);
  EXPECT_EQ(miss.tokens, 0);
  for (size_t n = 1; n <= one.size(); ++n) {  // step by step, both of a batch
    if (n > 8) batch.extend(hit.sequence, {one.begin(), one.begin() + static_cast<ptrdiff_t>(n)});
    if (n <= two.size()) batch.extend(miss.sequence, {two.begin(), two.begin() + static_cast<ptrdiff_t>(n)});
  }
  for (const size_t c : {0, 1}) {
    EXPECT_EQ(batch.read(hit.sequence, c), solo_one.read(cold_one, c));
    EXPECT_EQ(batch.read(miss.sequence, c), solo_two.read(cold_two, c));
  }
}

// differential-kv: a paraphrase and a second question over the same cached document must work; A, B, A gives the same
// A.
TEST(PrefixHits, SecondQuestionsOverOneDocument) {
  Server s(two_class_config(32));
  const Tokens document = text(1, 16);
  s.finish(s.serve(document + text(2, 3)).sequence);
  for (const int question : {3, 4, 3}) {
    const Tokens prompt = document + text(question, 6);
    const PrefixHit hit = s.serve(prompt);
    EXPECT_EQ(hit.tokens, question == 3 && s.index->stats().hits == 3 ? 20 : 16);
    EXPECT_EQ(s.read(hit.sequence, 0), prompt);
    s.finish(hit.sequence);
  }
}

TEST(PrefixHits, AConversationHitsItsOwnPast) {
  Server s(two_class_config(48), kPlenty);
  Tokens history;
  for (int turn = 0; turn < 6; ++turn) {
    history = history + text(turn + 1, 9);
    const PrefixHit hit = s.serve(history);
    EXPECT_EQ(hit.tokens, turn * 9 / 4 * 4) << turn;
    s.finish(hit.sequence);
  }
}

TEST(PrefixSeal, FinishTruncateAndForkLeaveTheEntriesValid) {
  Server s(small_config(24));
  const Tokens prompt = text(1, 13);
  const PrefixHit a = s.serve(prompt);
  ASSERT_OK(s.cache->truncate(a.sequence, 4));  // below two bound pages
  s.index->trim();
  s.check();
  // The sequence goes on with other tokens; the old ones stay bound for who asks for them.
  const Tokens other = Tokens(prompt.begin(), prompt.begin() + 4) + text(2, 9);
  s.extend(a.sequence, other);
  EXPECT_EQ(s.read(a.sequence, 0), other);
  const PrefixHit old = s.serve(prompt), changed = s.serve(other);
  EXPECT_EQ(old.tokens, 12);
  EXPECT_EQ(changed.tokens, 12);
  EXPECT_EQ(s.read(old.sequence, 0), prompt);
  EXPECT_EQ(s.read(changed.sequence, 0), other);
  const SequenceId child = *s.cache->fork(old.sequence);
  const SequenceId early = *s.cache->fork(old.sequence, 8);
  s.finish(a.sequence);
  s.finish(old.sequence);
  s.finish(old.sequence);  // aborted twice
  s.finish(changed.sequence);
  EXPECT_EQ(s.read(child, 0), prompt);
  s.extend(child, prompt + text(3, 5));
  s.extend(early, Tokens(prompt.begin(), prompt.begin() + 8) + text(4, 4));
  s.finish(child);
  s.finish(early);
  EXPECT_EQ(s.serve(prompt + text(3, 5)).tokens, 16);
  EXPECT_EQ(s.serve(Tokens(prompt.begin(), prompt.begin() + 8) + text(4, 5)).tokens, 12);
}

TEST(PrefixSeal, TokensForgottenAndReplacedWithinTheSamePageCountAreNoticed) {
  Server s(small_config(24));
  const Tokens first = text(1, 8), second = Tokens(first.begin(), first.begin() + 4) + text(2, 4);
  const SequenceId id = s.serve(first).sequence;
  ASSERT_OK(s.cache->truncate(id, 4));
  // Filled again before the next seal(): the length is as it was, the tokens are not.
  ASSERT_OK(testing::grow(*s.cache, id, 4));
  ASSERT_OK(s.index->seal(id, second, ""));
  s.check();
  EXPECT_EQ(s.index->stats().entries, 3u);
  s.finish(id);
  EXPECT_EQ(s.index->start(second + text(3, 1), "")->tokens, 8);
  EXPECT_EQ(s.index->start(first + text(3, 1), "")->tokens, 8);
}

TEST(PrefixSeal, AnEqualEntryWinsAndTheSecondPageStaysPrivate) {
  Server s(small_config(24));
  const Tokens prompt = text(1, 9);
  const PrefixHit a = *s.index->start(prompt, ""), b = *s.index->start(prompt, "");  // both miss
  s.extend(a.sequence, prompt);
  s.extend(b.sequence, prompt);
  EXPECT_EQ(s.index->stats().entries, 2u);
  EXPECT_TRUE(s.cache->blocks(a.sequence, 0)[0].cached);
  EXPECT_FALSE(s.cache->blocks(b.sequence, 0)[0].cached);
  s.finish(b.sequence);
  EXPECT_EQ(s.cache->cached_bytes(), 0u);
  s.finish(a.sequence);
  EXPECT_EQ(s.cache->cached_bytes(), 2 * kRecentBytes);
}

TEST(PrefixSeal, RefusesUnknownSequencesAndMissingTokens) {
  Server s(small_config(16));
  const Tokens prompt = text(1, 6);
  const SequenceId id = s.serve(prompt).sequence;
  const Status few = s.index->seal(id, std::span(prompt).first(5), "");
  EXPECT_EQ(few.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(few.message(), "5 tokens for sequence 1, which is 6 long")) << few.message();
  EXPECT_EQ(s.index->seal(99, prompt, "").code(), StatusCode::kInvalidArgument);
  s.finish(id);
  const Status gone = s.index->seal(id, prompt, "");
  EXPECT_TRUE(contains(gone.message(), "unknown or finished")) << gone.message();
  s.check();
}

// serving: another request's content in the reply.
TEST(PrefixTenants, ShareNothing) {
  Server s(with_sinks(two_class_config(32)));
  const Tokens prompt = text(1, 13);
  s.finish(s.serve(prompt, "alice").sequence);
  EXPECT_EQ(s.index->start(prompt, "bob")->tokens, 0);
  EXPECT_EQ(s.index->start(prompt, "")->tokens, 0);
  EXPECT_EQ(s.index->start(prompt, "alice")->tokens, 12);
  const PrefixHit bob = s.serve(prompt, "bob");
  EXPECT_EQ(bob.tokens, 0);
  EXPECT_EQ(s.index->stats().entries, 6u);
  // The same tokens, each tenant's own pages.
  const PrefixHit alice = *s.index->start(prompt, "alice");
  EXPECT_NE(s.cache->page_at(alice.sequence, 0, 0), s.cache->page_at(bob.sequence, 0, 0));
}

// serving: failed stores visible to lookups.
TEST(PrefixTenants, AForkedSequencesPagesBelongToTheTenantThatBoundThem) {
  Server s(small_config(32));
  const Tokens prompt = text(1, 9);
  const SequenceId alice = s.serve(prompt, "alice").sequence;
  const SequenceId bob = *s.cache->fork(alice);
  ASSERT_OK(s.index->seal(bob, prompt, "bob"));
  s.check();
  EXPECT_EQ(s.index->stats().held_elsewhere, 1u);
  EXPECT_EQ(s.index->stats().entries, 2u);
  ASSERT_OK(s.index->seal(bob, prompt, "bob"));
  EXPECT_EQ(s.index->stats().held_elsewhere, 1u);  // counted once, not at every step
  EXPECT_EQ(s.index->start(prompt, "bob")->tokens, 0);
}

// serving: the token ids are compared on a hit, so a collision refuses.
TEST(PrefixCollision, IsRefusedCountedAndAMissFromThere) {
  // Keys that do not see the tokens: every second chunk of a tenant collides.
  const KeyFn blind = [](const KeyFields& f) { return std::string(f.tenant) + "/" + std::string(f.parent) + "+"; };
  Server s(with_sinks(two_class_config(48)), kPlenty, blind);
  const Tokens a = text(1, 13), b = text(2, 13), c = Tokens(a.begin(), a.begin() + 4) + text(3, 9);
  s.finish(s.serve(a).sequence);
  EXPECT_EQ(s.index->start(a, "")->tokens, 12);
  EXPECT_EQ(s.index->stats().collisions, 0u);
  const PrefixHit other = s.serve(b);
  EXPECT_EQ(other.tokens, 0);
  EXPECT_EQ(s.index->stats().collisions, 2u);  // one at start, one when its first chunk was to be bound
  EXPECT_EQ(s.read(other.sequence, 0), b);
  EXPECT_EQ(s.index->stats().entries, 3u);
  const PrefixHit partly = s.serve(c);
  EXPECT_EQ(partly.tokens, 4);  // the first chunk is the same, the second one only has the same key
  EXPECT_EQ(s.index->stats().collisions, 4u);
  EXPECT_EQ(s.read(partly.sequence, 0), c);
  EXPECT_EQ(s.index->stats().entries, 3u);
  // A key function that mixes tenants up does not mix their pages up.
  Server blind_server(small_config(32), kPlenty, [](const KeyFields&) { return std::string("same"); });
  blind_server.finish(blind_server.serve(a, "alice").sequence);
  EXPECT_EQ(blind_server.index->start(a, "bob")->tokens, 0);
  EXPECT_EQ(blind_server.index->start(a, "alice")->tokens, 4);
}

TEST(PrefixWindow, AHitWhoseWindowIsGoneIsShortened) {
  Server s(two_class_config(48));
  const Tokens prompt = text(1, 21);
  s.finish(s.serve(prompt, "", 21).sequence);  // one settle: only the pages of the last window ever get bound
  EXPECT_EQ(s.index->stats().bound_pages, 5u + 2u);
  const PrefixHit whole = *s.index->start(prompt, "");
  EXPECT_EQ(whole.tokens, 20);
  const PrefixHit early = *s.index->start(Tokens(prompt.begin(), prompt.begin() + 14), "");
  EXPECT_EQ(early.tokens, 0);
  EXPECT_EQ(early.lost_tokens, 12);
  const PrefixStats stats = s.index->stats();
  EXPECT_EQ(stats.shortened, 1u);
  EXPECT_EQ(stats.lost_tokens, 12u);
  EXPECT_EQ(stats.misses, 2u);
  // The request computes them again; its window pages fill the gaps, so that the next one hits.
  s.extend(early.sequence, Tokens(prompt.begin(), prompt.begin() + 14));
  s.finish(early.sequence);
  EXPECT_EQ(s.index->start(Tokens(prompt.begin(), prompt.begin() + 14), "")->tokens, 12);
  EXPECT_EQ(s.index->start(Tokens(prompt.begin(), prompt.begin() + 9), "")->tokens, 8);
  s.check();
}

TEST(PrefixWindow, EveryChunkSizeOfPrefillAgainstEveryHitLength) {
  for (int step = 1; step <= 24; ++step) {
    Server s(two_class_config(48));
    const Tokens prompt = text(1, 25);
    s.finish(s.serve(prompt, "", step).sequence);
    for (int length = 2; length <= 25; ++length) {
      const Tokens cut(prompt.begin(), prompt.begin() + length);
      const PrefixHit hit = *s.index->start(cut, "");
      EXPECT_EQ(hit.tokens + hit.lost_tokens, (length - 1) / 4 * 4);
      if (hit.tokens != 0) {
        EXPECT_LE(s.cache->blocks(hit.sequence, 1).front().start, std::max(0, hit.tokens - 4));
      }
      ASSERT_OK(s.cache->reserve(hit.sequence, 1));
      s.finish(hit.sequence);
    }
  }
}

TEST(PrefixQuota, HoldsAfterEveryFinishAndTakesTheEndOfTheChainFirst) {
  Server s(with_sinks(small_config(24)), 2 * kRecentBytes + kSinkBytes);
  const Tokens prompt = text(1, 17);
  const PrefixHit cold = s.serve(prompt);
  EXPECT_EQ(s.index->stats().entries, 4u);  // in use: the quota does not limit them
  s.finish(cold.sequence);
  const PrefixStats stats = s.index->stats();
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_EQ(stats.evicted_entries[PrefixStats::kQuota], 2u);
  EXPECT_EQ(stats.evicted_pages[PrefixStats::kQuota], 2u);
  EXPECT_EQ(stats.cached_bytes, 2 * kRecentBytes);
  EXPECT_EQ(s.index->start(prompt, "")->tokens, 8);
}

TEST(PrefixQuota, CountsWhatPagesTakeInTheirTier) {
  Server s(small_config(24), 2 * kRecentBytes);
  const Tokens prompt = text(1, 17);
  const PrefixHit cold = s.serve(prompt);
  for (int start = 0; start < 16; start += 4) s.demote(s.cache->page_at(cold.sequence, 0, start), Tier::kStale1);
  s.finish(cold.sequence);
  EXPECT_EQ(s.index->stats().cached_bytes, 4 * kStale1Bytes);
  EXPECT_EQ(s.index->stats().entries, 4u);
}

TEST(PrefixQuota, ZeroBindsNothing) {
  Server s(with_sinks(two_class_config(24)), 0);
  const Tokens prompt = text(1, 13);
  s.finish(s.serve(prompt).sequence);
  EXPECT_EQ(s.cache->allocated_bytes(), 0u);
  EXPECT_EQ(s.serve(prompt).tokens, 0);
  EXPECT_EQ(s.index->stats().entries, 0u);
}

// differential-kv: fall back silently. What is not bound is counted with its reason.
TEST(PrefixQuota, WithoutRoomForTheSinksAChainIsNotBegun) {
  Server s(with_sinks(small_config(24)), kSinkBytes + 1);
  const PrefixHit a = s.serve(text(1, 9));
  EXPECT_EQ(s.index->stats().entries, 2u);
  s.serve(text(2, 9));
  EXPECT_EQ(s.index->stats().entries, 2u);
  EXPECT_EQ(s.index->stats().over_quota, 1u);
  s.finish(a.sequence);  // idle now, and larger than the quota
  EXPECT_EQ(s.index->stats().entries, 0u);
  EXPECT_EQ(s.index->stats().sinks_bytes, 0u);
}

TEST(PrefixQuota, IdleChunksBeforeAChunkInUseGoWithIt) {
  // Two sequences computed the same chunk; only the first one's page is bound, and only the second one lives on and has
  // the next chunk bound. The page that nobody uses is not at the end of the chain.
  Server s(small_config(24), kRecentBytes - 1);
  const Tokens shared = text(1, 4), longer = shared + text(2, 5);
  const PrefixHit a = *s.index->start(longer, ""), b = *s.index->start(longer, "");
  s.extend(a.sequence, shared);
  s.extend(b.sequence, longer);
  EXPECT_EQ(s.index->stats().entries, 2u);
  s.finish(a.sequence);
  EXPECT_EQ(s.index->stats().cached_bytes, 0u);
  // The next settle binds the second one's own pages.
  s.extend(b.sequence, longer + text(3, 1));
  EXPECT_EQ(s.index->stats().entries, 2u);
  EXPECT_TRUE(s.cache->blocks(b.sequence, 0)[0].cached);
  EXPECT_EQ(s.read(b.sequence, 0), longer + text(3, 1));
}

TEST(PrefixEvict, TheLeastRecentlyUsedGoesFirst) {
  Server s(small_config(32));
  for (const int seed : {1, 2, 3}) s.finish(s.serve(text(seed, 5)).sequence);
  EXPECT_EQ(s.index->evict(1), kRecentBytes);
  EXPECT_EQ(s.index->stats().evicted_entries[PrefixStats::kPressure], 1u);
  s.finish(s.serve(text(2, 5)).sequence);
  EXPECT_EQ(s.index->stats().hits, 1u);
  EXPECT_EQ(s.index->evict(1), kRecentBytes);
  EXPECT_EQ(s.index->start(text(2, 5), "")->tokens, 4);
  EXPECT_EQ(s.index->start(text(1, 5), "")->tokens, 0);
  EXPECT_EQ(s.index->start(text(3, 5), "")->tokens, 0);
  s.check();
}

TEST(PrefixEvict, AHitOutlivesABoundedNumberOfRequests) {
  constexpr int kBonus = static_cast<int>(PrefixIndex::kTicksPerHit * PrefixIndex::kMostHits);
  for (const bool popular : {false, true}) {
    Server s(small_config(8), 3 * kRecentBytes);
    const PrefixHit first = s.serve(text(1, 5));
    const PageId page = s.cache->page_at(first.sequence, 0, 0);
    s.finish(first.sequence);
    for (int i = 0; i < (popular ? 20 : 0); ++i) s.finish(s.serve(text(1, 5)).sequence);
    int requests = 0;
    while (s.cache->page(page) && requests < 1000) s.finish(s.serve(text(2 + requests++, 5)).sequence);
    if (popular) {
      EXPECT_GT(requests, kBonus - 4);
      EXPECT_LT(requests, kBonus + 8);
    } else {
      EXPECT_EQ(requests, 3);
    }
  }
}

TEST(PrefixEvict, SequencesInUseLoseNothing) {
  Server s(two_class_config(48));
  const Tokens prompt = text(1, 17);
  s.finish(s.serve(prompt).sequence);
  const PrefixHit hit = s.serve(prompt);
  s.finish(s.serve(text(2, 9)).sequence);
  const size_t freed = s.index->evict(kPlenty);
  EXPECT_GT(freed, 0u);
  s.check();
  EXPECT_EQ(s.read(hit.sequence, 0), prompt);
  EXPECT_EQ(s.index->evict(kPlenty), 0u);
  EXPECT_EQ(s.index->start(prompt, "")->tokens, 16);  // the chain in use is still there
  EXPECT_EQ(s.index->start(text(2, 9), "")->tokens, 0);
}

TEST(PrefixEvict, TakesOnlyWhatWasAsked) {
  Server s(small_config(32));
  s.finish(s.serve(text(1, 21)).sequence);
  EXPECT_EQ(s.index->evict(0), 0u);
  EXPECT_EQ(s.index->evict(kRecentBytes + 1), 2 * kRecentBytes);
  EXPECT_EQ(s.index->start(text(1, 21), "")->tokens, 12);  // from the end
  s.check();
}

// differential-kv: claim bytes freed that are not.
TEST(PrefixEvict, PagesUnderAReaderOrAConversionAreNotCountedAsFreed) {
  Server s(small_config(32));
  const SequenceId id = s.serve(text(1, 9)).sequence;
  const PageId first = s.cache->page_at(id, 0, 0);
  ReadGuard step = s.cache->read({{id}});
  auto conversion = std::move(s.cache->retier(0, first, Tier::kStale1)).value();
  s.finish(id);
  EXPECT_EQ(s.index->evict(kPlenty), 0u);
  s.check();
  EXPECT_EQ(s.index->stats().entries, 0u);
  EXPECT_FALSE(conversion.publish());
  step = {};
  EXPECT_EQ(s.cache->allocated_bytes(), 0u);
  s.check();
}

TEST(PrefixEvict, WindowsInsideAChainGoBeforeItsEnd) {
  // Full pages of 512 bytes, sliding ones of 192: 4 chunks are 4 * 512 + 8 * 192 bytes, a hit at the end needs
  // 4 * 512 + 2 * 192.
  Server s(two_class_config(48), 4 * kRecentBytes + 2 * 192);
  const Tokens prompt = text(1, 17);
  const SequenceId cold = s.serve(prompt).sequence;
  s.finish(cold);
  PrefixStats stats = s.index->stats();
  EXPECT_EQ(stats.entries, 4u);
  EXPECT_EQ(stats.bound_pages, 6u);
  EXPECT_EQ(s.index->start(prompt, "")->tokens, 16);
  EXPECT_EQ(s.index->start(Tokens(prompt.begin(), prompt.begin() + 13), "")->lost_tokens, 12);
}

TEST(PrefixEvict, AChunkThatNoHitCanEndAtAndThatLeadsNowhereGoesNext) {
  Server s(two_class_config(48));
  const Tokens prompt = text(1, 17);
  s.finish(s.serve(prompt, "", 17).sequence);  // windows are bound at the end only
  for (int i = 0; i < 20; ++i) s.finish(s.serve(prompt).sequence);
  EXPECT_EQ(s.index->stats().hits, 20u);
  EXPECT_GT(s.index->evict(1), 0u);  // the end, and with it the use of what was before it
  EXPECT_EQ(s.index->stats().entries, 3u);
  s.finish(s.serve(text(2, 5)).sequence);
  EXPECT_EQ(s.index->evict(3 * kRecentBytes), 3 * kRecentBytes);
  EXPECT_EQ(s.index->stats().entries, 1u);
  EXPECT_EQ(s.index->start(text(2, 5), "")->tokens, 4);  // used once, but of use
}

TEST(PrefixEvict, WindowsThatHitsEndAtStay) {
  Server s(two_class_config(48), 6 * kRecentBytes + 4 * 192);
  const Tokens system = text(1, 8);
  s.finish(s.serve(system + text(2, 1)).sequence);
  for (int i = 3; i < 9; ++i) {
    const PrefixHit hit = s.serve(system + text(i, 9));
    EXPECT_EQ(hit.tokens, 8) << i;  // the branch keeps its window, whatever the ends need
    s.finish(hit.sequence);
  }
}

// serving: eviction re-entering commit; partial allocation returned as a hit; pin without dequeue hangs.
TEST(PrefixEvict, WhileAHitIsBeingInstalledTakesOthersFirst) {
  Server s(small_config(8));
  const Tokens wanted = text(1, 9), other = text(2, 13);
  s.finish(s.serve(wanted).sequence);
  s.finish(s.serve(other).sequence);
  // Fill what is left with a third one, so that not even a strip fits.
  const PrefixHit filler = *s.index->start(text(3, 2), "");
  for (int n = 1; s.cache->reserve(filler.sequence, n).ok();) ++n;
  while (s.cache->shortfall() == 0) ASSERT_OK(s.cache->start().status());
  ASSERT_FALSE(s.cache->start().ok());
  const size_t entries = s.index->stats().entries;
  const auto hit = s.index->start(wanted, "");  // the other chain is newer, and still it goes
  ASSERT_OK(hit.status());
  EXPECT_EQ(hit->tokens, 8);
  EXPECT_LT(s.index->stats().entries, entries);
  const Tokens kept = s.read(hit->sequence, 0);
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), wanted.begin()));
  s.check();
  // Nothing stays pinned.
  s.finish(hit->sequence);
  s.index->evict(kPlenty);
  EXPECT_EQ(s.index->stats().entries, 0u);
}

TEST(PrefixEvict, AHitGetsShorterBeforeItIsRefused) {
  Server s(small_config(8));
  const Tokens wanted = text(1, 21);
  s.finish(s.serve(wanted).sequence);
  while (s.cache->shortfall() == 0) ASSERT_OK(s.cache->start().status());
  const auto hit = s.index->start(wanted, "");
  ASSERT_OK(hit.status());
  EXPECT_GT(hit->tokens, 0);
  EXPECT_LT(hit->tokens, 20);
  s.check();
}

// serving: a prompt larger than the pool hangs the queue; preemption livelock at a full pool.
TEST(PrefixFull, EveryOperationOnAFullPoolAnswersAtOnce) {
  Server s(with_sinks(small_config(8)));
  const Tokens prompt = text(1, 13);
  const SequenceId id = s.serve(prompt).sequence;
  for (int n = 1; s.cache->reserve(id, n).ok();) ++n;
  while (s.cache->shortfall() == 0) ASSERT_OK(s.cache->start().status());
  const auto starved = s.index->start(prompt, "");
  EXPECT_EQ(starved.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(s.index->stats().hits + s.index->stats().misses, 1u);  // a refusal is neither
  EXPECT_EQ(s.index->evict(kPlenty), 0u);                          // everything is in use
  s.index->trim();
  ASSERT_OK(s.index->seal(id, prompt, ""));
  EXPECT_EQ(s.cache->fork(id, 12).status().code(), StatusCode::kResourceExhausted);
  s.check();
  s.finish(id);
  EXPECT_EQ(s.index->start(prompt, "")->tokens, 12);
  s.check();
}

TEST(PrefixFull, EvictionMakesRoomForARequest) {
  Server s(small_config(8));
  s.finish(s.serve(text(1, 25)).sequence);
  EXPECT_EQ(s.cache->cached_bytes(), 6 * kRecentBytes);
  const PrefixHit next = *s.index->start(text(2, 20), "");
  EXPECT_EQ(s.cache->reserve(next.sequence, 20).code(), StatusCode::kResourceExhausted);
  while (s.cache->shortfall(next.sequence, 20) != 0) {
    ASSERT_GT(s.index->evict(s.cache->shortfall(next.sequence, 20)), 0u);
  }
  ASSERT_OK(s.cache->reserve(next.sequence, 20));
  s.check();
}

TEST(PrefixIndexLife, DestroyingItReleasesEveryPage) {
  Server s(with_sinks(two_class_config(48)));
  s.finish(s.serve(text(1, 17)).sequence);
  s.finish(s.serve(text(1, 8) + text(2, 9)).sequence);
  const PrefixHit live = s.serve(text(1, 17));
  s.index.reset();
  ASSERT_OK(s.cache->check());
  EXPECT_EQ(s.cache->cached_pages(), 0u);
  EXPECT_EQ(s.read(live.sequence, 0), text(1, 17));
  s.cache->finish(live.sequence);
  EXPECT_EQ(s.cache->allocated_bytes(), 0u);
}

// differential-kv: two runs identical; two engines with two configurations live in one process.
TEST(PrefixIndexLife, EqualRunsAreEqualAndTwoLiveSideBySide) {
  const auto play = [](Server* s, std::vector<int>* log, uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 60; ++i) {
      const Tokens prompt = text(static_cast<int>(random() % 5), 4 + static_cast<int>(random() % 12)) +
                            text(100 + i, static_cast<int>(random() % 5));
      const PrefixHit hit = s->serve(prompt, "", 1 + static_cast<int>(random() % 6));
      log->push_back(hit.tokens);
      log->push_back(hit.lost_tokens);
      s->finish(hit.sequence);
      const PrefixStats stats = s->index->stats();
      log->push_back(static_cast<int>(stats.entries * 1000 + stats.bound_pages));
    }
  };
  Server a(two_class_config(24), 3000), b(two_class_config(24), 3000), c(two_class_config(24), 5000);
  std::vector<int> log_a, log_b, log_c;
  play(&a, &log_a, 7);
  play(&b, &log_b, 7);
  play(&c, &log_c, 7);
  EXPECT_EQ(log_a, log_b);
  EXPECT_NE(log_a, log_c);
}

// With room for everything a hit is exactly the longest prefix that anybody of the tenant settled.
TEST(PrefixRandom, HitsAreExactlyTheLongestSealedPrefix) {
  for (uint32_t seed = 0; seed < 200u / testing::kSanitizerSlowdown; ++seed) {
    Server s(with_sinks(small_config(4096)));
    std::mt19937 random(seed);
    std::map<std::string, std::set<Tokens>> sealed;
    std::vector<SequenceId> running;
    for (int i = 0; i < 40; ++i) {
      Tokens prompt(1 + random() % 20);
      for (int32_t& token : prompt) token = random() % 8 == 0 ? 1 : 0;  // few different chunks
      const std::string tenant = random() % 2 == 0 ? "a" : "b";
      size_t longest = 0;
      for (size_t n = 4; n < prompt.size(); n += 4) {
        if (sealed[tenant].contains({prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n)})) longest = n;
      }
      const PrefixHit hit = s.serve(prompt, tenant, 1 + static_cast<int>(random() % 7));
      ASSERT_EQ(hit.tokens, static_cast<int>(longest)) << "seed " << seed << " prompt " << i;
      ASSERT_EQ(s.read(hit.sequence, 0), prompt);
      for (size_t n = 4; n <= prompt.size(); n += 4) {
        sealed[tenant].insert({prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(n)});
      }
      running.push_back(hit.sequence);
      if (random() % 2 == 0) {
        const size_t which = random() % running.size();
        s.finish(running[which]);
        running.erase(running.begin() + static_cast<ptrdiff_t>(which));
      }
    }
  }
}

}  // namespace
}  // namespace varve::cache
