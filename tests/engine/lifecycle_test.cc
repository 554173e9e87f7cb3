// Scores, anchors and promotions through the engine.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;
using testing::Tokens;

class LifecycleTest : public ::testing::Test {
 protected:
  static std::shared_ptr<model::Model> model() {
    static const std::shared_ptr<model::Model> loaded = TinyEngine::load();
    return loaded;
  }

  static EngineOptions options(const std::string& restore, bool scoring = false) {
    EngineOptions o = TinyEngine::options(TinyEngine::small_minima());
    o.chunk_tokens = 1024;
    o.profile.scoring.on = scoring;
    o.profile.scoring.restore = restore;
    o.profile.scoring.dwell_tokens = 0;
    o.profile.scoring.recompute_tokens_per_step = 16;
    o.prefix_cache_bytes = 0;
    return o;
  }

  static int64_t pages(const Engine& e, const std::string& tier) {
    int64_t n = 0;
    for (const TierStats& t : e.stats().kv.tiers) n += t.tier == tier ? t.pages : 0;
    return n;
  }

  /// Moves pages until nothing changes; the session's tokens, which end at a page boundary, stay as they are.
  static void converge(Engine& e, SessionId session) {
    const int length = int(e.tokens(session).size());
    for (uint32_t i = 0; i < 60; ++i) TinyEngine::feed(e, session, TinyEngine::tokens(e, 1, 1000 + i));
    EXPECT_EQ(e.truncate(session, length).value(), length);
  }
};

TEST_F(LifecycleTest, ARestoredPageIsThePageThatWasNeverDemoted) {
  for (const char* restore : {"host", "disk"}) {
    SCOPED_TRACE(restore);
    // Scoring on, so that refinements are kept, with no place for what attention likes.
    EngineOptions o = options(restore, true);
    o.profile.scoring.anchor_tokens = 0;
    const auto kept = TinyEngine::make(model(), o), restored = TinyEngine::make(model(), o);
    const Tokens text = TinyEngine::tokens(*kept, 640, 1);
    const SessionId a = kept->start().value(), b = restored->start().value();
    ASSERT_TRUE(kept->mark(a, 128, 192).ok());
    // One step: no row is read from a page while the text is fed, so both engines hold the same rows.
    TinyEngine::feed(*kept, a, text);
    TinyEngine::feed(*restored, b, text);
    converge(*kept, a);
    converge(*restored, b);
    EXPECT_EQ(pages(*kept, "anchor"), 1);
    EXPECT_EQ(pages(*restored, "anchor"), 0);
    ASSERT_TRUE(restored->mark(b, 128, 192).ok());
    converge(*restored, b);
    EXPECT_EQ(pages(*restored, "anchor"), 1);
    EXPECT_EQ(restored->stats().promotions, (std::map<std::string, uint64_t>{{"restore", 1}}));
    EXPECT_EQ(restored->stats().refinement_place, restore);
    EXPECT_GT(restored->stats().refinement_bytes, 0u);
    const Tokens next = TinyEngine::tokens(*kept, 4, 2);
    EXPECT_EQ(TinyEngine::feed(*kept, a, next), TinyEngine::feed(*restored, b, next));
    EXPECT_TRUE(restored->check().ok()) << restored->check().message();
  }
}

TEST_F(LifecycleTest, ARecomputedPageIsCloserThanOneRebuiltFromItsCodes) {
  const Tokens next = {5, 6, 7, 8};
  std::map<std::string, double> kl;
  for (const char* restore : {"recompute", "none"}) {
    const auto kept = TinyEngine::make(model(), options("none")), other = TinyEngine::make(model(), options(restore));
    const Tokens text = TinyEngine::tokens(*kept, 640, 1);
    const SessionId a = kept->start().value(), b = other->start().value();
    ASSERT_TRUE(kept->mark(a, 0, 640).ok());
    TinyEngine::feed(*kept, a, text);
    TinyEngine::feed(*other, b, text);
    converge(*kept, a);
    converge(*other, b);
    ASSERT_TRUE(other->mark(b, 0, 256).ok());
    converge(*other, b);
    EXPECT_EQ(pages(*other, "anchor"), 4);
    const EngineStats stats = other->stats();
    EXPECT_EQ(stats.promotions.at(restore == std::string("none") ? "lossy" : "recompute"), 4u);
    EXPECT_EQ(stats.recomputed_tokens, restore == std::string("none") ? 0u : 256u);
    kl[restore] = TinyEngine::kl(TinyEngine::feed(*kept, a, next), TinyEngine::feed(*other, b, next));
    EXPECT_TRUE(other->check().ok()) << other->check().message();
  }
  EXPECT_LT(kl["recompute"], kl["none"]);
}

TEST_F(LifecycleTest, EqualRunsGiveEqualTracesAndLogitsWithEverythingOn) {
  std::vector<std::string> traces[2];
  std::vector<float> logits[2];
  for (int run = 0; run < 2; ++run) {
    EngineOptions o = options("recompute", true);
    o.profile.scoring.least_score = 0.5;
    o.profile.scoring.anchor_tokens = 128;
    o.threads = 1 + run;
    o.on_transition = [&](const Transition& t) {
      traces[run].push_back(std::to_string(t.step) + " " + std::to_string(t.page_start) + t.from + t.to + t.why +
                            t.how + t.outcome + std::to_string(t.score));
    };
    const auto e = TinyEngine::make(model(), o);
    const SessionId s = e->start().value();
    TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 640, 3));
    for (uint32_t i = 0; i < 150; ++i) logits[run] = TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 1, i));
    EXPECT_GT(e->stats().scored_steps, 150u);
    e->finish(s);
  }
  EXPECT_FALSE(traces[0].empty());
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_F(LifecycleTest, TheTraceAccountsForEveryPage) {
  std::map<uint64_t, std::string> tier;
  EngineOptions o = options("recompute", true);
  o.on_transition = [&](const Transition& t) {
    if (t.outcome != "published") return;
    EXPECT_EQ(tier[t.page], t.from) << t.why;
    tier[t.page] = t.to;
  };
  const auto e = TinyEngine::make(model(), o);
  const SessionId s = e->start().value();
  for (int i = 0; i < 10; ++i) TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 70, uint32_t(i)));
  std::map<std::string, int64_t> counts;
  for (const auto& [page, where] : tier) ++counts[where];
  EXPECT_EQ(counts["stale1"], pages(*e, "stale1"));
  EXPECT_EQ(counts["anchor"], pages(*e, "anchor"));
  EXPECT_EQ(e->truncate(s, 128).value(), 128);
  e->finish(s);
  for (const auto& [page, where] : tier) EXPECT_EQ(where, "") << page;
}

TEST_F(LifecycleTest, WithoutScoringNothingIsMeasured) {
  for (const Profile& p : {*Profile::named("dense"), TinyEngine::small_minima()}) {
    EngineOptions o = TinyEngine::options(p);
    o.profile.scoring.on = false;
    const auto e = TinyEngine::make(model(), o);
    const SessionId s = e->start().value();
    TinyEngine::feed(*e, s, TinyEngine::tokens(*e, 300, 4));
    EXPECT_EQ(e->stats().scored_steps, 0u);
    EXPECT_EQ(e->stats().promotions.size(), 0u);
  }
}

TEST_F(LifecycleTest, MeasuringAloneChangesNoLogits) {
  EngineOptions scored = options("recompute", true);
  scored.profile.scoring.anchor_tokens = 0;
  const auto a = TinyEngine::make(model(), scored), b = TinyEngine::make(model(), options("recompute", false));
  const SessionId sa = a->start().value(), sb = b->start().value();
  for (int i = 0; i < 6; ++i) {
    const Tokens t = TinyEngine::tokens(*a, i % 2 == 0 ? 150 : 1, uint32_t(i));
    EXPECT_EQ(TinyEngine::feed(*a, sa, t), TinyEngine::feed(*b, sb, t));
  }
}

TEST_F(LifecycleTest, BadMarksAndDirectoriesAreRefusedWithTheNumbers) {
  const auto e = TinyEngine::make(model(), options("none"));
  const SessionId s = e->start().value();
  EXPECT_EQ(e->mark(s + 1, 0, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(e->mark(s, -1, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(e->mark(s, 5, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(e->mark(s, 0, 1 << 29).message().find(std::to_string(1 << 29)), std::string::npos);
  EngineOptions o = options("disk", true);
  o.refinement_dir = "/nowhere/at/all";
  const auto refused = Engine::create(model(), o);
  EXPECT_EQ(refused.status().code(), StatusCode::kIoError);
  EXPECT_NE(refused.status().message().find("/nowhere/at/all"), std::string::npos) << refused.status().message();
}

/// Equation 14 with the real numbers: as many sessions as it says, and one more is refused.
TEST_F(LifecycleTest, AsManySessionsAsEquation14SaysAndNotOneMore) {
  EngineOptions o = options("none");
  o.chunk_tokens = 128;
  o.kv_budget_bytes = size_t{6} << 20;
  constexpr int kLength = 700;
  const auto e = TinyEngine::make(model(), o);
  o.kv_budget_bytes = size_t{256} << 20;
  const auto roomy = TinyEngine::make(model(), o);
  o.kv_budget_bytes = size_t{6} << 20;
  std::vector<SessionId> sessions;
  Status refused;
  while (refused.ok() && sessions.size() < 1000) {
    const auto opened = e->open({}, {.expected_tokens = kLength});
    if (opened.ok()) sessions.push_back(opened->session);
    refused = opened.status();
  }
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find(std::to_string(o.kv_budget_bytes)), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find(std::to_string(sessions.size()) + " open sessions"), std::string::npos)
      << refused.message();
  ASSERT_GT(sessions.size(), 3u);

  // Each reads its prompt, then all decode side by side to their full length and answer as each alone.
  constexpr int kPrompt = kLength - 40;
  std::vector<Tokens> texts;
  std::vector<std::vector<float>> last(sessions.size());
  const auto read = [](Engine& engine, SessionId s, const Tokens& text) {
    TinyEngine::feed(engine, s, std::span(text).first(kPrompt));
  };
  for (size_t i = 0; i < sessions.size(); ++i) {
    texts.push_back(TinyEngine::tokens(*e, kLength, uint32_t(50 + i)));
    read(*e, sessions[i], texts[i]);
  }
  for (int done = kPrompt; done < kLength; ++done) {
    for (size_t i = 0; i < sessions.size(); ++i) {
      last[i] = TinyEngine::feed(*e, sessions[i], std::span(texts[i]).subspan(size_t(done), 1));
    }
  }
  for (size_t i = 0; i < sessions.size(); i += 3) {
    const SessionId alone = roomy->start().value();
    read(*roomy, alone, texts[i]);
    std::vector<float> expected;
    for (int done = kPrompt; done < kLength; ++done) {
      expected = TinyEngine::feed(*roomy, alone, std::span(texts[i]).subspan(size_t(done), 1));
    }
    roomy->finish(alone);
    if (expected == last[i]) continue;
    // While a prompt is read more pages are recent than afterwards: pressure may have demoted some early, and says so.
    EXPECT_TRUE(e->stats().fallbacks.contains("demoted_pressure")) << i;
    EXPECT_LE(TinyEngine::kl(expected, last[i]), 0.3) << i;
  }
  for (const auto& [why, n] : e->stats().fallbacks) EXPECT_EQ(why, "demoted_pressure") << n;
  EXPECT_LE(e->stats().kv.physical_bytes - e->stats().kv.scratch_bytes, o.kv_budget_bytes);
  // A place that becomes free is given away again.
  e->finish(sessions.back());
  EXPECT_TRUE(e->open({}, {.expected_tokens = kLength}).ok());
  EXPECT_EQ(e->open({}, {.expected_tokens = kLength}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(e->check().ok()) << e->check().message();
}

/// The page that A recomputed is B's too; A goes before the page is converted.
TEST_F(LifecycleTest, ARecomputedPageSurvivesTheSessionThatAskedForIt) {
  EngineOptions o = options("recompute");
  o.profile.convert_tokens_per_step = 4;
  std::vector<float> logits[2];
  for (const bool leaves : {false, true}) {
    const auto e = TinyEngine::make(model(), o);
    const SessionId a = e->start().value();
    TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 640, 1));
    converge(*e, a);
    const SessionId b = e->fork(a).value();
    ASSERT_TRUE(e->mark(a, 128, 192).ok());
    uint32_t steps = 0;
    for (; e->stats().recomputed_tokens < 64; ++steps) TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, steps));
    for (uint32_t i = 0; i < 4; ++i) TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, steps + i));
    EXPECT_EQ(e->stats().promotions.size(), 0u) << "still being converted";
    if (leaves) e->finish(a);
    EXPECT_TRUE(e->check().ok()) << e->check().message();
    for (uint32_t i = 0; i < 30; ++i) {
      if (!leaves) TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, 100 + i));
      logits[leaves] = TinyEngine::feed(*e, b, TinyEngine::tokens(*e, 1, 200 + i));
    }
    EXPECT_EQ(e->stats().promotions, (std::map<std::string, uint64_t>{{"recompute", 1}}));
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
  EXPECT_LE(TinyEngine::kl(logits[0], logits[1]), 1e-6);
}

/// Promotions under way hold memory; they give it back before anybody is refused.
TEST_F(LifecycleTest, RecomputationsTakeNoRoomFromSessions) {
  size_t fed[2];
  for (const bool marked : {false, true}) {
    EngineOptions o = options("recompute");
    o.chunk_tokens = 64;
    o.kv_budget_bytes = size_t{1000} << 10;
    o.context_tokens = 4096;
    o.profile.scoring.recompute_tokens_per_step = 4;
    const auto e = TinyEngine::make(model(), o);
    const SessionId a = e->start().value(), b = e->start().value();
    TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 640, 1));
    converge(*e, a);
    if (marked) {
      ASSERT_TRUE(e->mark(a, 0, 640).ok());
    }
    for (uint32_t i = 0; i < 20; ++i) TinyEngine::feed(*e, a, TinyEngine::tokens(*e, 1, i));
    std::vector<float> logits;
    const Tokens text = TinyEngine::tokens(*e, 4096, 2);
    EXPECT_EQ(e->feed(b, text, Logits::kLast, logits).code(), StatusCode::kResourceExhausted);
    fed[marked] = e->tokens(b).size();
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
  EXPECT_EQ(fed[0], fed[1]);
}

/// Anchors in any format beside any other, every source of fidelity, with and without sliding windows.
TEST_F(LifecycleTest, OddFormatsOfTiersPromoteToo) {
  const struct {
    const char *recent, *anchor, *stale;
    bool override_layer;
  } cases[] = {{"int8", "f16", "k8v8", false}, {"f16", "int8", "k8v8", false}, {"k8v8", "k6v4", "int8", false},
               {"int8", "fp8", "k8v8", false}, {"int8", "int8", "k8v8", true}};
  const auto gemma = TinyEngine::load({.architecture = "gemma3", .layers = 7, .tied = true});
  for (const auto& loaded : {model(), gemma}) {
    EngineOptions exact = TinyEngine::options(*Profile::named("dense"));
    exact.chunk_tokens = 1024;
    const auto dense = TinyEngine::make(loaded, exact);
    for (const auto& c : cases) {
      for (const char* restore : {"recompute", "host", "none"}) {
        SCOPED_TRACE(std::string(c.recent) + " " + c.anchor + " " + c.stale + " " + restore);
        EngineOptions o = options(restore, true);
        o.profile.scoring.anchor_tokens = 0;
        o.profile.formats = {c.recent, c.anchor, c.stale, "", "auto"};
        if (c.override_layer) o.profile.layers = {{.first = -1, .last = -1, .formats = {.anchor = "f16"}}};
        const auto e = TinyEngine::make(loaded, o);
        const SessionId s = e->start().value(), d = dense->start().value();
        Tokens text = TinyEngine::tokens(*e, 450, 1);
        TinyEngine::feed(*e, s, std::span(text).first(400));
        for (size_t i = 400; i < 420; ++i) TinyEngine::feed(*e, s, std::span(text).subspan(i, 1));
        ASSERT_TRUE(e->mark(s, 64, 192).ok());
        std::vector<float> logits;
        for (size_t i = 420; i < 450; ++i) logits = TinyEngine::feed(*e, s, std::span(text).subspan(i, 1));
        EXPECT_GT(pages(*e, "anchor"), 0);
        EXPECT_FALSE(e->stats().promotions.empty());
        EXPECT_TRUE(e->check().ok()) << e->check().message();
        const double kl = TinyEngine::kl(TinyEngine::feed(*dense, d, text), logits);
        EXPECT_LE(kl, 0.03);
        dense->finish(d);
      }
    }
  }
}

}  // namespace
}  // namespace varve
