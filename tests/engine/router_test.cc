// The router over a real model: what a profile's numbers do to steps, and what they must not change.

#include <gtest/gtest.h>

#include <cmath>

#include "eval/divergence.h"
#include "model/model.h"
#include "model/text.h"
#include "support/models.h"
#include "support/texts.h"
#include "varve/engine.h"

namespace varve {
namespace {

using Tokens = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;

class RouterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
    static std::shared_ptr<model::Model> shared;
    static Tokens text;
    if (!shared) {
      auto loaded = model::Model::load(path, {});
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      shared = *loaded;
      std::string prose;
      while (text.size() < 2200) {
        prose += testing::english_text() + testing::code_text();
        text = *model::tokenize(*shared, prose, true, false);
      }
    }
    model_ = shared;
    text_ = text;
  }

  /// Pages of 64 tokens, so that a short context has many.
  static Profile routed(const Routing& router, const std::string& base = "minima") {
    Profile p = *Profile::load(base);
    p.name = "routed";
    p.page_tokens = 64;
    p.router = router;
    return p;
  }

  std::unique_ptr<Engine> engine(const Profile& p, int threads = 1) {
    EngineOptions options;
    options.profile = p;
    options.threads = threads;
    options.chunk_tokens = 256;
    options.kv_budget_bytes = size_t{1} << 30;
    options.poison_freed = true;
    auto e = Engine::create(model_, options);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return e.ok() ? std::move(*e) : nullptr;
  }

  Rows read(Engine& e, SessionId session, int prompt, int steps) {
    Rows out(1);
    Status s = e.feed(session, std::span(text_).first(size_t(prompt)), Logits::kLast, out[0]);
    EXPECT_TRUE(s.ok()) << s.message();
    for (int i = 0; i < steps; ++i) {
      const Feed feed{session, std::span(text_).subspan(size_t(prompt + i), 1), Logits::kLast};
      s = e.step({&feed, 1}, out.emplace_back());
      EXPECT_TRUE(s.ok()) << s.message();
    }
    return out;
  }

  std::shared_ptr<model::Model> model_;
  Tokens text_;
};

constexpr int kPrompt = 2060, kSteps = 6;

TEST_F(RouterTest, DecodeAttendsToTheChosenPagesAndSaysSo) {
  const auto all = engine(routed({}));
  const Rows want = read(*all, all->start().value(), kPrompt, kSteps);
  EXPECT_EQ(all->stats().router.decode_tokens, 0u);

  const auto e = engine(routed({.pages = 8, .from_tokens = 1024, .window_tokens = 256}));
  const SessionId session = e->start().value();
  const Rows got = read(*e, session, kPrompt, kSteps);
  EXPECT_EQ(got[0], want[0]) << "the prompt attends to all pages";
  const RouterStats stats = e->stats().router;
  EXPECT_EQ(stats.selections, uint64_t(kSteps) * 30 * 3);
  EXPECT_EQ(stats.reused, 0u);
  EXPECT_EQ(stats.prefill_attended, stats.prefill_tokens);
  // 8 pages, the first one, a window of 256 tokens that starts inside a page, and the open page, of 2,061 tokens.
  EXPECT_LT(stats.decode_share(), 0.5);
  EXPECT_GT(stats.decode_share(), 0.35);
  EXPECT_NEAR(stats.last_step_share, stats.decode_share(), 0.02);
  EXPECT_GT(stats.pages_skipped, 0u);
  double kl = 0;
  for (int i = 1; i <= kSteps; ++i) kl += eval::compare_logits(want[size_t(i)], got[size_t(i)], -1).kl / kSteps;
  EXPECT_GT(kl, 0.0);
  EXPECT_LT(kl, 0.2) << "two fifths of the context, well chosen";
  e->finish(session);
  EXPECT_TRUE(e->check().ok()) << e->check().message();

  // A threshold that is not reached: the bits of no router.
  const auto idle = engine(routed({.pages = 1, .from_tokens = 4096}));
  EXPECT_EQ(read(*idle, idle->start().value(), kPrompt, kSteps), want);
  EXPECT_EQ(idle->stats().router.selections, 0u);
  EXPECT_EQ(idle->stats().router.decode_share(), 1.0);
}

TEST_F(RouterTest, PromptsAreRoutedWhereAskedAndTheirLastTokensSeeAll) {
  const Routing router{.pages = 4, .from_tokens = 512, .window_tokens = 128, .prefill = true};
  const auto e = engine(routed(router)), two = engine(routed(router), 2);
  const Rows once = read(*e, e->start().value(), 1292, 3);
  const RouterStats stats = e->stats().router;
  EXPECT_LT(stats.prefill_share(), 0.8);
  EXPECT_GT(stats.prefill_share(), 0.2);
  EXPECT_EQ(once, read(*two, two->start().value(), 1292, 3)) << "two threads";
  EXPECT_EQ(once, read(*e, e->start().value(), 1292, 3)) << "a second session";
  for (const std::vector<float>& logits : once) {
    for (const float x : logits) ASSERT_TRUE(std::isfinite(x));
  }
  // 12 tokens are left for the last chunk; 64 tokens see all, those of the chunk before it included.
  Routing none = router;
  none.question_tokens = 0;
  const auto blind = engine(routed(none));
  const Rows other = read(*blind, blind->start().value(), 1292, 0);
  EXPECT_NE(other[0], once[0]);
  EXPECT_LT(blind->stats().router.prefill_attended, stats.prefill_attended);
}

TEST_F(RouterTest, SessionsForksAndCutsKeepNoSelection) {
  const auto e = engine(routed({.pages = 4, .from_tokens = 512, .window_tokens = 128, .reroute_steps = 4}));
  const SessionId a = e->start().value();
  const Rows first = read(*e, a, 1200, 5);
  EXPECT_EQ(e->stats().router.selections, 2u * 90);
  EXPECT_EQ(e->stats().router.reused, 3u * 90);
  // A fork and a session that was cut begin with a selection of their own.
  const auto made = [&](SessionId session, int at) {
    const uint64_t before = e->stats().router.selections;
    std::vector<float> logits;
    const Feed feed{session, std::span(text_).subspan(size_t(at), 1), Logits::kLast};
    EXPECT_TRUE(e->step({&feed, 1}, logits).ok());
    return e->stats().router.selections - before;
  };
  const SessionId fork = e->fork(a).value();
  EXPECT_EQ(made(fork, 1205), 90u);
  EXPECT_EQ(made(a, 1205), 0u) << "the parent goes on with its own";
  EXPECT_EQ(e->truncate(a, 1202).value(), 1202);
  EXPECT_EQ(made(a, 1202), 90u);
  e->finish(a);
  e->finish(fork);
  const SessionId again = e->start().value();
  EXPECT_EQ(read(*e, again, 1200, 5), first) << "A, others, A";
}

TEST_F(RouterTest, NeighboursDoNotMatterToASelection) {
  const auto e = engine(routed({.pages = 4, .from_tokens = 512, .window_tokens = 128}));
  const SessionId alone = e->start().value(), a = e->start().value(), b = e->start().value();
  std::vector<float> logits;
  for (const SessionId s : {alone, a}) {
    ASSERT_TRUE(e->feed(s, std::span(text_).first(1200), Logits::kLast, logits).ok());
  }
  ASSERT_TRUE(e->feed(b, std::span(text_).subspan(300, 900), Logits::kLast, logits).ok());
  std::vector<float> one, both;
  const Feed single{alone, std::span(text_).subspan(1200, 1), Logits::kLast};
  ASSERT_TRUE(e->step({&single, 1}, one).ok());
  const Feed feeds[] = {{a, std::span(text_).subspan(1200, 1), Logits::kLast},
                        {b, std::span(text_).subspan(1200, 1), Logits::kLast}};
  ASSERT_TRUE(e->step(feeds, both).ok());
  both.resize(one.size());
  EXPECT_LT(eval::compare_logits(one, both, -1).kl, 1e-3) << "but for ggml's one-row and many-row kernels";
}

TEST_F(RouterTest, F16PagesAreRoutedToo) {
  const auto e = engine(routed({.pages = 4, .from_tokens = 512, .window_tokens = 128, .prefill = true}, "dense"));
  const SessionId session = e->start().value();
  const Rows rows = read(*e, session, 1200, 3);
  EXPECT_LT(e->stats().router.decode_share(), 0.6);
  std::vector<float> k, v;
  EXPECT_EQ(e->read_rows(session, 0, 0, 1, k, v).code(), StatusCode::kInvalidArgument) << "it is no dense control";
}

}  // namespace
}  // namespace varve
