// Low-rank pages through the engine: what profiles may ask for, conversions and promotions, and a document read and
// asked about.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/cache_plan.h"
#include "engine/page_traits.h"
#include "model/text.h"
#include "support/models.h"
#include "support/texts.h"
#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;
using testing::Tokens;

class LowRankEngine : public ::testing::Test {
 protected:
  static std::shared_ptr<model::Model> model() {
    static const std::shared_ptr<model::Model> loaded = TinyEngine::load();
    return loaded;
  }

  static Profile profile(const std::string& stale1) {
    Profile p = TinyEngine::small_minima();
    p.name = "small-lr";
    p.formats.stale1 = stale1;
    return p;
  }

  static EngineOptions options(const Profile& p) {
    EngineOptions o = TinyEngine::options(p);
    o.chunk_tokens = 1024;
    o.prefix_cache_bytes = 0;
    o.profile.scoring.dwell_tokens = 0;
    return o;
  }

  static int64_t pages(const Engine& e, const std::string& tier) {
    int64_t n = 0;
    for (const TierStats& t : e.stats().kv.tiers) n += t.tier == tier ? t.pages : 0;
    return n;
  }

  static std::string refusal(const Profile& p) {
    const auto e = Engine::create(model(), TinyEngine::options(p));
    EXPECT_EQ(e.status().code(), StatusCode::kInvalidArgument);
    return e.status().message();
  }
};

TEST_F(LowRankEngine, CoarseSourcesAreRefusedWithTheirWidths) {
  Profile p = profile("lr8+16");
  p.formats.recent = p.formats.anchor = "k4v3";
  const std::string coarse = refusal(p);
  EXPECT_NE(coarse.find("lr8+16"), std::string::npos) << coarse;
  EXPECT_NE(coarse.find("k4v3 (4-bit keys and 3-bit values)"), std::string::npos) << coarse;
  p = profile("lr8+16");
  p.formats.anchor = "k8v4";
  EXPECT_NE(refusal(p).find("tier anchor, k8v4 (8-bit keys and 4-bit values)"), std::string::npos) << refusal(p);
  p = profile("lr8+16");
  p.formats.anchor = "lr16+16";
  EXPECT_NE(refusal(p).find("low-rank itself"), std::string::npos) << refusal(p);
  p = profile("lr8+16");
  p.formats.recent = "lr8+16";
  EXPECT_NE(refusal(p).find("tier recent is lr8+16"), std::string::npos) << refusal(p);
  // One layer alone.
  p = profile("k4v3");
  p.layers = {{1, 1, {.stale1 = "lr8+16"}}};
  EXPECT_TRUE(Engine::create(model(), TinyEngine::options(p)).ok());
  p.layers[0].formats.recent = "k6v4";
  EXPECT_NE(refusal(p).find("layer 1: "), std::string::npos) << refusal(p);
  p = profile("lr64+0");  // of pages of 64
  EXPECT_NE(refusal(p).find("rank 64 is not within 1..63"), std::string::npos) << refusal(p);
}

TEST_F(LowRankEngine, PagesAreConvertedAndCounted) {
  for (const char* format : {"lr8+16", "lr8+16/int4/rotated"}) {
    const auto e = TinyEngine::make(model(), options(profile(format)));
    const auto dense = TinyEngine::make(model(), options(*Profile::named("dense")));
    const SessionId s = e->start().value(), d = dense->start().value();
    const Tokens text = TinyEngine::tokens(*e, 640, 1);
    TinyEngine::feed(*e, s, text);
    TinyEngine::feed(*dense, d, text);
    std::vector<float> logits, want;
    for (uint32_t i = 0; i < 40; ++i) {
      const Tokens next = TinyEngine::tokens(*e, 1, 50 + i);
      logits = TinyEngine::feed(*e, s, next);
      want = TinyEngine::feed(*dense, d, next);
    }
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    EXPECT_LT(TinyEngine::kl(want, logits), 0.5);
    const EngineStats stats = e->stats();
    EXPECT_EQ(pages(*e, "stale1"), 9);
    EXPECT_EQ(stats.low_rank.blocks, 2u * 9) << "one a page and layer";
    EXPECT_EQ(stats.low_rank.tokens, 2u * 9 * 64);
    EXPECT_GT(stats.low_rank.tokens_per_s(), 0);
    EXPECT_GE(stats.low_rank.exact_rows, stats.low_rank.blocks * 16);
    EXPECT_GT(stats.low_rank.mean_retained_energy(), 0.1);
    EXPECT_TRUE(stats.fallbacks.empty());
    EXPECT_TRUE(e->check().ok()) << e->check().message();
    size_t bytes = 0;
    for (const TierStats& t : stats.kv.tiers) bytes += t.bytes;
    EXPECT_EQ(stats.kv.physical_bytes, bytes + stats.kv.scratch_bytes);
    EXPECT_GT(stats.kv.scratch_bytes, 0u);
    e->finish(s);
  }
}

// Layers that differ, and a promotion: what a block holds becomes int8 codes again, lossy and counted.
TEST_F(LowRankEngine, MixedLayersConvertAndComeBack) {
  Profile p = profile("k3v3");
  p.layers = {{0, 0, {.stale1 = "lr8+16"}}};
  p.scoring.restore = "none";
  const auto e = TinyEngine::make(model(), options(p));
  const SessionId s = e->start().value();
  TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 640, 1));
  for (uint32_t i = 0; i < 20; ++i) TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 1, 50 + i));
  EXPECT_EQ(e->stats().low_rank.blocks, 9u);
  ASSERT_TRUE(e->mark(s, 64, 192).ok());
  std::vector<float> logits;
  for (uint32_t i = 0; i < 20; ++i) logits = TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 1, 90 + i));
  EXPECT_EQ(pages(*e, "anchor"), 2);
  EXPECT_EQ(e->stats().promotions.at("lossy"), 2u);
  EXPECT_EQ(e->stats().fallbacks.at("promote_lossy"), 2u);
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

TEST_F(LowRankEngine, EqualRunsGiveEqualLogitsOnAnyNumberOfThreads) {
  std::vector<float> logits[3];
  for (int run = 0; run < 3; ++run) {
    EngineOptions o = options(profile("lr12+10"));
    o.threads = 1 + run % 2;
    const auto e = TinyEngine::make(model(), o);
    const SessionId a = e->start().value();
    TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 500, 3));
    if (run == 2) {  // another session in between leaves no trace
      const SessionId other = e->start().value();
      TinyEngine::feed(*e, other, TinyEngine::tokens(*e, 300, 8));
    }
    for (uint32_t i = 0; i < 30; ++i) logits[run] = TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, i));
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(logits[0], logits[2]);
}

// What decides which rows are exact is part of what a page is.
TEST_F(LowRankEngine, TheSelectionIsInTheDigest) {
  const ContentOptions a;
  ContentOptions b;
  b.digit_boost = 21;
  EXPECT_EQ(engine::content_digest(a), engine::content_digest(ContentOptions{}));
  EXPECT_NE(engine::content_digest(a), engine::content_digest(b));
}

// A session that starts on cached pages reads the blocks that another one made.
TEST_F(LowRankEngine, AHitReadsTheBlocksOfAnotherSession) {
  EngineOptions o = options(profile("lr8+16"));
  o.prefix_cache_bytes = size_t{64} << 20;
  const auto e = TinyEngine::make(model(), o);
  const Tokens text = TinyEngine::tokens(*e, 640, 1), next = TinyEngine::tokens(*e, 3, 2);
  const SessionId a = e->open(text, {})->session;
  TinyEngine::feed(*e, a, text);
  for (uint32_t i = 0; i < 20; ++i) TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, i));
  const uint64_t blocks = e->stats().low_rank.blocks;
  const auto hit = e->open(text, {});
  ASSERT_TRUE(hit.ok());
  EXPECT_GE(hit->cached_tokens, 512);
  Tokens rest(text.begin() + hit->cached_tokens, text.end());
  TinyEngine::feed(*e, hit->session, rest);
  EXPECT_EQ(e->stats().low_rank.blocks, blocks);
  e->finish(a);
  TinyEngine::feed(*e, hit->session, next);
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

// The real thing: a document of some pages is read, and what comes next is predicted nearly as over the dense cache.
TEST(LowRankDocument, ReadsAndPredicts) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto loaded = model::Model::load(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto tokenized = model::tokenize(**loaded, testing::english_text() + testing::code_text(), true, false);
  ASSERT_TRUE(tokenized.ok());
  const std::span<const int32_t> text = std::span(*tokenized).first(1100);
  std::vector<float> want;
  for (const char* stale1 : {"", "lr32+64", "lr32+64/rotated"}) {
    Profile p = *Profile::named("dense");
    if (*stale1 != '\0') {
      p = TinyEngine::small_minima();
      p.page_tokens = 256;
      p.recent_tokens = 256;
      p.formats.anchor = "";
      p.formats.stale1 = stale1;
    }
    EngineOptions o = TinyEngine::options(p);
    o.prefix_cache_bytes = 0;
    const auto e = TinyEngine::make(*loaded, o);
    const SessionId s = e->start().value();
    std::vector<float> logits;
    ASSERT_TRUE(e->feed(s, text.first(1000), Logits::kNone, logits).ok());
    ASSERT_TRUE(e->feed(s, text.subspan(1000), Logits::kAll, logits).ok());
    if (want.empty()) {
      want = logits;
      continue;
    }
    EXPECT_EQ(e->stats().low_rank.blocks, 30u * 3) << stale1;
    EXPECT_TRUE(e->stats().fallbacks.empty());
    double kl = 0;
    const auto vocabulary = size_t(e->vocabulary());
    for (size_t r = 0; r < 100; ++r) {
      const auto row = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + ptrdiff_t(r * vocabulary),
                                  all.begin() + ptrdiff_t((r + 1) * vocabulary));
      };
      kl += TinyEngine::kl(row(want), row(logits)) / 100;
    }
    EXPECT_LT(kl, 0.3) << stale1;
    EXPECT_GT(kl, 0) << stale1;
  }
}

}  // namespace
}  // namespace varve
