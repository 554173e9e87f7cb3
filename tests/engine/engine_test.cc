// The engine over a real model: what must hold for every answer, whatever the profile.

#include "varve/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/divergence.h"
#include "model/model.h"
#include "model/text.h"
#include "support/models.h"
#include "support/texts.h"

namespace varve {
namespace {

using Tokens = std::vector<int32_t>;

/// ggml's barrier spins; tests run side by side, so one thread each.
constexpr int kThreads = 1;

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
    static std::shared_ptr<model::Model> shared;  // loaded once for the whole program
    if (!shared) {
      auto loaded = model::Model::load(path, {});
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      shared = *loaded;
    }
    model_ = shared;
    english_ = tokens(testing::english_text());
    code_ = tokens(testing::code_text());
  }

  Tokens tokens(const std::string& text) {
    auto t = model::tokenize(*model_, text, true, false);
    EXPECT_TRUE(t.ok());
    return *t;
  }

  static Profile profile(const std::string& name) {
    auto p = Profile::load(name);
    EXPECT_TRUE(p.ok()) << p.status().message();
    return *p;
  }

  /// Small pages and a short recent window, so that a few hundred tokens pass through every tier.
  static Profile small_minima() {
    Profile p = profile("minima");
    p.name = "small-minima";
    p.page_tokens = 64;
    p.recent_tokens = 64;
    return p;
  }

  std::unique_ptr<Engine> engine(const Profile& p, size_t budget = size_t{1} << 30, int threads = kThreads) {
    EngineOptions options;
    options.profile = p;
    options.threads = threads;
    options.chunk_tokens = 128;
    options.kv_budget_bytes = budget;
    options.poison_freed = true;
    auto e = Engine::create(model_, options);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return e.ok() ? std::move(*e) : nullptr;
  }

  /// Logits after the prompt and after each of `steps` further tokens of `text`, one by one.
  static std::vector<std::vector<float>> read(Engine& e, SessionId session, const Tokens& text, int prompt, int steps) {
    std::vector<std::vector<float>> out(1);
    Status s = e.feed(session, std::span(text).first(size_t(prompt)), Logits::kLast, out[0]);
    EXPECT_TRUE(s.ok()) << s.message();
    for (int i = 0; i < steps; ++i) {
      const Feed feed{session, std::span(text).subspan(size_t(prompt + i), 1), Logits::kLast};
      s = e.step({&feed, 1}, out.emplace_back());
      EXPECT_TRUE(s.ok()) << s.message();
    }
    return out;
  }

  static std::vector<std::vector<float>> read_alone(Engine& e, const Tokens& text, int prompt, int steps) {
    const SessionId session = e.start().value();
    auto out = read(e, session, text, prompt, steps);
    e.finish(session);
    EXPECT_TRUE(e.check().ok()) << e.check().message();
    return out;
  }

  std::shared_ptr<model::Model> model_;
  Tokens english_, code_;
};

TEST_F(EngineTest, DenseIsBitIdenticalRunToRunAndRunsNoCodec) {
  const auto a = engine(profile("dense")), b = engine(profile("dense"));
  EXPECT_EQ(read_alone(*a, english_, 300, 8), read_alone(*b, english_, 300, 8));
  EXPECT_EQ(a->stats().transitions, 0u);
  EXPECT_EQ(a->stats().converted_tokens, 0u);
}

TEST_F(EngineTest, SequenceABAGivesTheSameA) {
  for (const Profile& p : {profile("dense"), small_minima()}) {
    SCOPED_TRACE(p.name);
    const auto e = engine(p);
    const auto first = read_alone(*e, english_, 300, 8);
    read_alone(*e, code_, 333, 5);
    EXPECT_EQ(first, read_alone(*e, english_, 300, 8));
    EXPECT_EQ(e->stats().kv.tiers.size(), 0u) << "everything is freed";
  }
}

TEST_F(EngineTest, PagesMoveThroughTheTiers) {
  const auto e = engine(small_minima());
  const SessionId session = e->start().value();
  read(*e, session, english_, 400, 20);
  const EngineStats stats = e->stats();
  EXPECT_GE(stats.transitions, 4u);
  EXPECT_TRUE(stats.fallbacks.empty());
  int64_t tokens = 0;
  size_t bytes = 0;
  bool stale = false;
  for (const TierStats& t : stats.kv.tiers) {
    tokens += t.tokens;
    bytes += t.bytes;
    stale |= t.tier == "stale1" && t.tokens > 0;
  }
  EXPECT_TRUE(stale);
  EXPECT_GE(tokens, 420);
  EXPECT_LE(tokens, 420 + 16) << "sinks are counted beside their page";
  EXPECT_EQ(bytes + stats.kv.scratch_bytes, stats.kv.physical_bytes);
  EXPECT_EQ(stats.kv.payload_bytes + stats.kv.metadata_bytes + stats.kv.scratch_bytes, stats.kv.physical_bytes);
  EXPECT_EQ(stats.kv.dense_bytes, 420u * 22.5 * 1024);
}

TEST_F(EngineTest, ConversionsHappenAtTheSameStepsEveryTime) {
  const auto a = engine(small_minima()), b = engine(small_minima());
  EXPECT_EQ(read_alone(*a, english_, 300, 70), read_alone(*b, english_, 300, 70));
}

TEST_F(EngineTest, TheNumberOfThreadsChangesNothing) {
  const auto a = engine(small_minima(), size_t{1} << 30, 1), b = engine(small_minima(), size_t{1} << 30, 2);
  EXPECT_EQ(read_alone(*a, english_, 200, 2), read_alone(*b, english_, 200, 2));
}

TEST_F(EngineTest, BatchNeighboursChangeNothing) {
  const auto e = engine(small_minima());
  const auto alone = read_alone(*e, english_, 200, 12);
  const SessionId a = e->start().value(), b = e->start().value();
  std::vector<float> logits;
  ASSERT_TRUE(e->feed(a, std::span(english_).first(200), Logits::kLast, logits).ok());
  ASSERT_TRUE(e->feed(b, std::span(code_).first(131), Logits::kLast, logits).ok());
  const size_t vocabulary = static_cast<size_t>(e->vocabulary());
  for (size_t i = 0; i < 12; ++i) {
    const Feed feeds[] = {{b, std::span(code_).subspan(131 + i, 1), Logits::kLast},
                          {a, std::span(english_).subspan(200 + i, 1), Logits::kLast}};
    ASSERT_TRUE(e->step(feeds, logits).ok());
    // ggml multiplies one row and several rows with different kernels, so bits may differ; distributions may not.
    const auto d = eval::compare_logits(alone[i + 1], {logits.data() + vocabulary, vocabulary}, -1);
    EXPECT_LE(d.kl, 1e-4) << "step " << i;
  }
}

TEST_F(EngineTest, ALongFeedHasTheSameBitsWithAndWithoutNeighbours) {
  const auto e = engine(profile("dense"));
  ASSERT_GT(e->stats().own_weight_products, 0) << "the test model's weights are of a type that ggml is slow at";
  const auto logits_of = [&](bool neighbours) {
    const SessionId a = e->start().value(), b = e->start().value();
    std::vector<float> logits;
    EXPECT_TRUE(e->feed(b, std::span(code_).first(20), Logits::kLast, logits).ok());
    // The short feed comes first, so that its row has to make room for the long one's and the logits are put back.
    const std::vector<Feed> feeds = {{b, std::span(code_).subspan(20, 3), Logits::kLast},
                                     {a, std::span(english_).first(100), Logits::kAll}};
    EXPECT_TRUE(e->step(neighbours ? std::span(feeds) : std::span(feeds).last(1), logits).ok());
    e->finish(a);
    e->finish(b);
    return logits;
  };
  const std::vector<float> alone = logits_of(false), together = logits_of(true);
  const size_t vocabulary = static_cast<size_t>(e->vocabulary());
  ASSERT_EQ(together.size(), 101 * vocabulary);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + ptrdiff_t(vocabulary)));
  EXPECT_EQ(e->stats().fallbacks.size(), 0u);
}

TEST_F(EngineTest, OwnWeightProductsStayCloseToGgmls) {
  const auto logits_of = [&](const std::string& weight_gemm, int threads) {
    EngineOptions options;
    options.profile = profile("dense");
    options.threads = threads;
    options.chunk_tokens = 128;
    options.kv_budget_bytes = size_t{1} << 30;
    options.weight_gemm = weight_gemm;
    const auto e = Engine::create(model_, options);
    EXPECT_TRUE(e.ok()) << e.status().message();
    EXPECT_EQ((*e)->stats().own_weight_products > 0, weight_gemm == "auto");
    std::vector<float> logits;
    const SessionId session = (*e)->start().value();
    EXPECT_TRUE((*e)->feed(session, std::span(english_).first(200), Logits::kAll, logits).ok());
    return logits;
  };
  const std::vector<float> ours = logits_of("auto", 1), ggml = logits_of("ggml", 1);
  EXPECT_EQ(ours, logits_of("auto", 2));
  const size_t vocabulary = ours.size() / 200;
  double sum = 0;
  for (size_t i = 0; i < 200; ++i) {
    const auto row = [&](const std::vector<float>& x) { return std::span(x).subspan(i * vocabulary, vocabulary); };
    sum += eval::compare_logits(row(ggml), row(ours), -1).kl;
  }
  EXPECT_LT(sum / 200, 5e-3);
  EXPECT_GT(sum, 0) << "the two are the same arithmetic";
}

TEST_F(EngineTest, TwoProfilesLiveInOneProcess) {
  const auto dense = engine(profile("dense")), coded = engine(profile("k3v2"));
  const auto before = read_alone(*dense, english_, 200, 2);
  const auto other = read_alone(*coded, english_, 200, 2);
  EXPECT_EQ(before, read_alone(*dense, english_, 200, 2));
  const double kl = eval::compare_logits(before.back(), other.back(), -1).kl;
  EXPECT_GT(kl, 1e-6) << "the coarse profile really is coarse";
  EXPECT_LT(kl, 1.0);
}

TEST_F(EngineTest, AForkContinuesLikeItsParent) {
  for (const Profile& p : {profile("dense"), small_minima()}) {
    SCOPED_TRACE(p.name);
    const auto e = engine(p);
    const SessionId parent = e->start().value();
    read(*e, parent, english_, 300, 0);
    const SessionId fork = e->fork(parent).value();
    const SessionId other = e->fork(parent).value();
    std::vector<float> a, b, c;
    ASSERT_TRUE(e->feed(other, std::span(code_).first(90), Logits::kLast, c).ok()) << "its own way first";
    const auto next = std::span(english_).subspan(300, 30);
    ASSERT_TRUE(e->feed(parent, next, Logits::kLast, a).ok());
    ASSERT_TRUE(e->feed(fork, next, Logits::kLast, b).ok());
    EXPECT_EQ(a, b);
    e->finish(parent);
    e->finish(parent);
    const Feed more{fork, std::span(english_).subspan(330, 1), Logits::kLast};
    EXPECT_TRUE(e->step({&more, 1}, b).ok());
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
}

TEST_F(EngineTest, TruncateThenReadAgainGivesTheSame) {
  for (const Profile& p : {profile("dense"), small_minima()}) {
    SCOPED_TRACE(p.name);
    const auto e = engine(p);
    const SessionId session = e->start().value();
    std::vector<float> first, again;
    ASSERT_TRUE(e->feed(session, std::span(english_).first(200), Logits::kLast, first).ok());
    ASSERT_TRUE(e->feed(session, std::span(english_).subspan(200, 10), Logits::kLast, first).ok());
    const auto kept = e->truncate(session, 200);
    ASSERT_TRUE(kept.ok()) << kept.status().message();
    EXPECT_LE(*kept, 200);
    EXPECT_EQ(e->tokens(session).size(), size_t(*kept));
    const auto rest = std::span(english_).subspan(size_t(*kept), size_t(210 - *kept));
    ASSERT_TRUE(e->feed(session, rest, Logits::kLast, again).ok());
    EXPECT_LE(eval::compare_logits(first, again, -1).kl, p.is_dense() ? 1e-4 : 2e-2);
  }
}

TEST_F(EngineTest, AFullBudgetRefusesOneAndTheOthersGoOn) {
  const Profile p = small_minima();
  const auto big = engine(p);
  const auto expected = read_alone(*big, english_, 150, 3);
  // Room for one reader of 150 tokens and not for a second one of 600.
  const auto e = engine(p, size_t{6} << 20);
  const SessionId small = e->start().value(), large = e->start().value();
  std::vector<float> logits;
  ASSERT_TRUE(e->feed(small, std::span(english_).first(150), Logits::kLast, logits).ok());
  Tokens long_text = english_;
  long_text.insert(long_text.end(), code_.begin(), code_.end());
  const Status refused = e->feed(large, std::span(long_text).first(1200), Logits::kLast, logits);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("budget"), std::string::npos) << refused.message();
  EXPECT_TRUE(e->check().ok()) << e->check().message();
  e->finish(large);
  const Feed more{small, std::span(english_).subspan(150, 1), Logits::kLast};
  ASSERT_TRUE(e->step({&more, 1}, logits).ok());
  EXPECT_LE(eval::compare_logits(expected[1], logits, -1).kl, 2e-2);
}

TEST_F(EngineTest, BadFeedsChangeNothing) {
  const auto e = engine(profile("dense"));
  const SessionId session = e->start().value();
  std::vector<float> logits;
  const Tokens good(english_.begin(), english_.begin() + 4), out_of_vocabulary = {1, -1}, too_high = {1, 1 << 20};
  const Feed twice[] = {{session, good, Logits::kLast}, {session, good, Logits::kLast}};
  EXPECT_EQ(e->step(twice, logits).code(), StatusCode::kInvalidArgument);
  for (const Feed& bad : {Feed{session, {}, Logits::kLast}, Feed{session + 77, good, Logits::kLast},
                          Feed{session, out_of_vocabulary, Logits::kLast}, Feed{session, too_high, Logits::kLast}}) {
    EXPECT_EQ(e->step({&bad, 1}, logits).code(), StatusCode::kInvalidArgument);
  }
  const Tokens long_text(size_t(e->context_tokens() + 1), good[1]);
  const Status overflow = e->feed(session, long_text, Logits::kLast, logits);
  EXPECT_EQ(overflow.code(), StatusCode::kContextOverflow);
  EXPECT_NE(overflow.message().find(std::to_string(e->context_tokens())), std::string::npos) << overflow.message();
  EXPECT_TRUE(e->tokens(session).empty());
  EXPECT_EQ(e->step({}, logits).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(e->check().ok());
}

TEST_F(EngineTest, BadOptionsAreRefusedWithTheNumbers) {
  const auto refused = [&](auto change) {
    EngineOptions options;
    options.profile = profile("minima");
    options.threads = kThreads;
    change(options);
    const auto e = Engine::create(model_, options);
    EXPECT_FALSE(e.ok());
    return e.ok() ? std::string() : e.status().message();
  };
  EXPECT_NE(refused([](EngineOptions& o) { o.kv_budget_bytes = 1000; }).find("1000"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.context_tokens = 1 << 20; }).find("8192"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.threads = -1; }).find("-1"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.chunk_tokens = 0; }).find("1 to 8192"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernel = "sse9"; }).find("sse9"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.weight_gemm = "mkl"; }).find("known: auto, ggml"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) {
              o.profile.layers.push_back({.first = 40, .last = 41, .formats = {.stale1 = "k5v4"}});
            }).find("30 KV layers"),
            std::string::npos);
}

}  // namespace
}  // namespace varve
