// Prefix hits through the engine: what is found, what it changes (nothing), who may find it.

#include <gtest/gtest.h>

#include <algorithm>

#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;
using testing::Tokens;

class PrefixTest : public ::testing::Test {
 protected:
  static std::shared_ptr<model::Model> model() {
    static const std::shared_ptr<model::Model> loaded = TinyEngine::load();
    return loaded;
  }
  static std::unique_ptr<Engine> engine(const Profile& p) { return TinyEngine::make(model(), TinyEngine::options(p)); }
  static std::unique_ptr<Engine> engine(const std::string& name) { return engine(*Profile::load(name)); }

  static Opened open(Engine& e, std::span<const int32_t> prompt, const std::string& tenant = "") {
    const auto opened = e.open(prompt, {.tenant = tenant});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? *opened : Opened{};
  }
  static std::vector<float> rest(Engine& e, const Opened& o, std::span<const int32_t> prompt) {
    return TinyEngine::feed(e, o.session, prompt.subspan(size_t(o.cached_tokens)));
  }
};

TEST_F(PrefixTest, ADenseHitGivesTheBitsOfAColdRunCutAtTheSamePlace) {
  Profile dense = *Profile::named("dense");
  dense.page_tokens = 64;
  const auto e = engine(dense);
  const Tokens prompt = TinyEngine::tokens(*e, 300, 1);
  const SessionId cold = e->start().value();
  TinyEngine::feed(*e, cold, std::span(prompt).first(256));
  const auto expected = TinyEngine::feed(*e, cold, std::span(prompt).subspan(256));
  e->finish(cold);
  const Opened hit = open(*e, prompt);
  EXPECT_EQ(hit.cached_tokens, 256);
  EXPECT_EQ(rest(*e, hit, prompt), expected);
  EXPECT_EQ(e->stats().prefix.hits, 1u);
  EXPECT_EQ(e->stats().prefix.hit_tokens, 256u);
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

TEST_F(PrefixTest, EveryRemainderOfThePageIsFoundUpToItsLastWholePage) {
  Profile int8 = *Profile::named("int8");  // pages never change, so a hit must give the owner's bits
  int8.page_tokens = 64;
  const auto e = engine(int8);
  const Tokens text = TinyEngine::tokens(*e, 3 * 64 + 2, 2);
  for (int n = 1; n <= 2 * 64 + 2; ++n) {
    SCOPED_TRACE(n);
    const std::string tenant = std::to_string(n);
    const auto prompt = std::span(text).first(size_t(n));
    const int whole = (n - 1) / 64 * 64;
    const Opened first = open(*e, prompt, tenant);
    EXPECT_EQ(first.cached_tokens, 0);
    if (whole > 0) TinyEngine::feed(*e, first.session, prompt.first(size_t(whole)));
    const auto cold = TinyEngine::feed(*e, first.session, prompt.subspan(size_t(whole)));
    e->finish(first.session);
    const Opened again = open(*e, prompt, tenant);
    EXPECT_EQ(again.cached_tokens, whole) << "at least one token is left to feed";
    EXPECT_EQ(cold, rest(*e, again, prompt));
    e->finish(again.session);
  }
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

TEST_F(PrefixTest, AHitOnMixedTiersContinuesLikeItsOwner) {
  const auto e = engine(TinyEngine::small_minima());
  const Tokens text = TinyEngine::tokens(*e, 700, 3);
  const Opened owner = open(*e, std::span(text).first(640));
  rest(*e, owner, std::span(text).first(640));
  bool stale = false;
  for (const TierStats& t : e->stats().kv.tiers) stale |= t.tier == "stale1" && t.pages > 0;
  ASSERT_TRUE(stale);
  // 640 is a page boundary, so fork and hit start from the same pages and an empty open tile.
  const SessionId fork = e->fork(owner.session).value();
  const Opened hit = open(*e, std::span(text).first(641));
  ASSERT_EQ(hit.cached_tokens, 640);
  const auto next = std::span(text).subspan(640, 20);
  EXPECT_EQ(TinyEngine::feed(*e, fork, next), TinyEngine::feed(*e, hit.session, next));
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

TEST_F(PrefixTest, TwoRequestsHitOnePrefixAtOnceAndADeduplicatedBatchEqualsSolo) {
  const auto e = engine(TinyEngine::small_minima());
  const Tokens prefix = TinyEngine::tokens(*e, 512, 4);
  const Opened owner = open(*e, prefix);
  rest(*e, owner, prefix);
  e->finish(owner.session);

  const auto prompt = [&](uint32_t seed) {
    Tokens p = prefix;
    const Tokens own = TinyEngine::tokens(*e, 9, seed);
    p.insert(p.end(), own.begin(), own.end());
    return p;
  };
  const Tokens a = prompt(5), b = prompt(6), miss = TinyEngine::tokens(*e, 521, 7);
  const auto solo = [&](const Tokens& p) {
    const Opened o = open(*e, p);
    auto logits = rest(*e, o, p);
    std::vector<float> out;
    const Feed f{o.session, std::span(p).first(1), Logits::kLast};
    EXPECT_TRUE(e->step({&f, 1}, out).ok());
    e->finish(o.session);
    return out;
  };
  const auto solo_a = solo(a), solo_b = solo(b), solo_miss = solo(miss);

  const Opened hit_a = open(*e, a), hit_b = open(*e, b), cold = open(*e, miss, "somebody else");
  EXPECT_EQ(hit_a.cached_tokens, 512);
  EXPECT_EQ(hit_b.cached_tokens, 512);
  EXPECT_EQ(cold.cached_tokens, 0);
  rest(*e, hit_a, a);
  rest(*e, hit_b, b);
  rest(*e, cold, miss);
  const Feed feeds[] = {{hit_a.session, std::span(a).first(1), Logits::kLast},
                        {hit_b.session, std::span(b).first(1), Logits::kLast},
                        {cold.session, std::span(miss).first(1), Logits::kLast}};
  std::vector<float> rows;
  const EngineStats before = e->stats();
  ASSERT_TRUE(e->step(feeds, rows).ok());
  const EngineStats after = e->stats();
  // Both hits attend to the 8 tiles of the prefix in 2 layers of 2 KV heads, which are read once.
  EXPECT_EQ((after.tiles_requested - before.tiles_requested) - (after.tiles_read - before.tiles_read), 8u * 2 * 2);
  const size_t v = size_t(e->vocabulary());
  const auto row = [&](size_t i) {
    return std::vector<float>(rows.begin() + long(i * v), rows.begin() + long((i + 1) * v));
  };
  EXPECT_LE(TinyEngine::kl(solo_a, row(0)), 1e-5);
  EXPECT_LE(TinyEngine::kl(solo_b, row(1)), 1e-5);
  EXPECT_LE(TinyEngine::kl(solo_miss, row(2)), 1e-5);
}

TEST_F(PrefixTest, TenantsCannotSeeEachOthersPages) {
  const auto e = engine("dense");
  const Tokens prompt = TinyEngine::tokens(*e, 600, 8);
  rest(*e, open(*e, prompt, "alice"), prompt);
  EXPECT_EQ(open(*e, prompt, "bob").cached_tokens, 0);
  EXPECT_EQ(open(*e, prompt, "").cached_tokens, 0);
  EXPECT_EQ(open(*e, prompt, "alice").cached_tokens, 512);
}

TEST_F(PrefixTest, CachedPagesMakeRoomForNewSessions) {
  EngineOptions o = TinyEngine::options(TinyEngine::small_minima());
  o.kv_budget_bytes = size_t{1} << 20;
  o.prefix_cache_bytes = size_t{1} << 20;
  const auto e = TinyEngine::make(model(), o);
  for (uint32_t round = 0; round < 12; ++round) {
    const Tokens prompt = TinyEngine::tokens(*e, 700, 100 + round);
    const Opened opened = open(*e, prompt);
    EXPECT_FALSE(rest(*e, opened, prompt).empty());
    e->finish(opened.session);
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
  EXPECT_GT(e->stats().prefix.evicted, 0u);
}

TEST_F(PrefixTest, TheQuotaIsKept) {
  EngineOptions o = TinyEngine::options(TinyEngine::small_minima());
  o.prefix_cache_bytes = size_t{400} << 10;
  const auto e = TinyEngine::make(model(), o);
  for (uint32_t round = 0; round < 6; ++round) {
    const Tokens prompt = TinyEngine::tokens(*e, 500, 200 + round);
    const Opened opened = open(*e, prompt);
    rest(*e, opened, prompt);
    e->finish(opened.session);
    EXPECT_LE(e->stats().prefix.bytes, o.prefix_cache_bytes);
    EXPECT_LE(e->stats().kv.cached_bytes, o.prefix_cache_bytes);
  }
}

TEST_F(PrefixTest, AHitOfASlidingWindowModelKeepsItsWindow) {
  const auto gemma = TinyEngine::load({.architecture = "gemma3", .layers = 7, .tied = true});
  const auto e = TinyEngine::make(gemma, TinyEngine::options(TinyEngine::small_minima()));
  const Tokens text = TinyEngine::tokens(*e, 900, 9);
  const auto prompt = std::span(text).first(833);
  const Opened cold = open(*e, prompt);
  const auto expected = rest(*e, cold, prompt);
  e->finish(cold.session);
  for (const int n : {833, 300}) {
    SCOPED_TRACE(n);
    const Opened hit = open(*e, std::span(text).first(size_t(n)));
    EXPECT_GT(hit.cached_tokens, 0);
    EXPECT_EQ(hit.cached_tokens + hit.lost_tokens, (n - 1) / 64 * 64);
    const auto logits = rest(*e, hit, std::span(text).first(size_t(n)));
    if (n == 833) {
      EXPECT_LE(TinyEngine::kl(expected, logits), 0.05);
    }
    e->finish(hit.session);
  }
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

TEST_F(PrefixTest, OnlyTheSamePrefixAtTheSamePlaceIsFound) {
  const auto e = engine("dense");
  Tokens prompt = TinyEngine::tokens(*e, 600, 10);
  rest(*e, open(*e, prompt), prompt);
  Tokens shifted(prompt.begin() + 256, prompt.end());  // a page's tokens at another position: no context shift
  EXPECT_EQ(open(*e, shifted).cached_tokens, 0);
  ++prompt[300];
  prompt[300] %= e->vocabulary();
  EXPECT_EQ(open(*e, prompt).cached_tokens, 256);
  prompt[0] = (prompt[0] + 1) % e->vocabulary();
  EXPECT_EQ(open(*e, prompt).cached_tokens, 0);
}

TEST_F(PrefixTest, CachedPagesMakeRoomForStartsAndForks) {
  EngineOptions o = TinyEngine::options(TinyEngine::small_minima());
  o.kv_budget_bytes = size_t{1} << 20;
  o.prefix_cache_bytes = size_t{1} << 20;
  for (const bool forks : {false, true}) {
    SCOPED_TRACE(forks);
    const auto e = TinyEngine::make(model(), o);
    const SessionId parent = e->start().value();
    TinyEngine::feed(*e, parent, TinyEngine::tokens(*e, 30, 1));
    for (uint32_t i = 0; i < 12; ++i) {
      const Tokens prompt = TinyEngine::tokens(*e, 600, 10 + i);
      const Opened opened = open(*e, prompt);
      rest(*e, opened, prompt);
      e->finish(opened.session);
    }
    ASSERT_GT(e->stats().kv.cached_bytes, size_t{1} << 18);
    for (int i = 0; i < 3; ++i) {
      const auto session = forks ? e->fork(parent) : e->start();
      EXPECT_TRUE(session.ok()) << session.status().message();
    }
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
}

}  // namespace
}  // namespace varve
