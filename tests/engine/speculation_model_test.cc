// Speculative decoding over a real model: greedy answers are those of plain decoding, and what several rows in one step
// change about the logits stays within the stated bound.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/generate.h"
#include "engine/speculation/lookup.h"
#include "eval/divergence.h"
#include "model/chat.h"
#include "model/text.h"
#include "support/models.h"
#include "support/texts.h"
#include "varve/engine.h"

namespace varve::engine {
namespace {

using Tokens = std::vector<int32_t>;

/// What a step of up to 4 rows may change about a row's logits: the rounding of ggml's many-row matrix kernels, where
/// they differ from the one-row kernels at all. Where the two best logits are further apart than twice this, greedy
/// decoding takes the same token (ADR 0018).
constexpr float kRowBound = 0.05f;
constexpr double kRowKl = 1e-5;
/// Longer steps take attention's prefill path, and ggml's 8-bit activations magnify its rounding.
constexpr double kManyRowsKl = 0.03;

class SpeculationModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
    static std::shared_ptr<model::Model> shared;
    if (!shared) {
      auto loaded = model::Model::load(path, {});
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      shared = *loaded;
    }
    model_ = shared;
  }

  std::unique_ptr<Engine> engine(const std::string& profile) {
    EngineOptions options;
    options.profile = *Profile::load(profile);
    options.threads = 1;
    options.kv_budget_bytes = size_t{1} << 30;
    auto e = Engine::create(model_, options);
    EXPECT_TRUE(e.ok()) << e.status().message();
    return std::move(*e);
  }

  Tokens prompt(const std::string& user) {
    const auto chat = model::ChatTemplate::create(*model_, "");
    const auto applied = (*chat)->apply({{.role = "user", .content = user}}, {});
    return *model::chat_tokens(*model_, *applied);
  }

  std::shared_ptr<model::Model> model_;
};

TEST_F(SpeculationModelTest, GreedyAnswersAreTheSameWithLookup) {
  const auto lookup = PromptLookup::create({}).value();
  const std::string text = testing::english_text().substr(0, 500);
  const std::string code = testing::code_text().substr(0, 500);
  for (const std::string profile : {"dense", "minima"}) {
    const auto e = engine(profile);
    uint64_t accepted = 0;
    for (const std::string& user : {"Repeat this text word for word:\n\n" + text, "Copy this code exactly:\n\n" + code,
                                    std::string("Name three colours and say what each reminds you of.")}) {
      SCOPED_TRACE(profile + ": " + user.substr(0, 30));
      const Tokens tokens = prompt(user);
      const SessionId base = e->start().value();
      std::vector<float> first;
      ASSERT_TRUE(e->feed(base, tokens, Logits::kLast, first).ok());
      Tokens held[2];
      for (const bool fast : {false, true}) {
        const SessionId session = e->fork(base).value();
        const auto sampler = model::Sampler::create(model_, {}).value();
        const auto made = generate(*e, session, *sampler, first,
                                   {.max_tokens = 40, .speculation = {.drafter = fast ? lookup.get() : nullptr}});
        ASSERT_TRUE(made.ok()) << made.status().message();
        held[fast].assign(e->tokens(session).begin(), e->tokens(session).end());
        accepted += made->speculation.accepted;
        e->finish(session);
      }
      EXPECT_EQ(held[0], held[1]);
      e->finish(base);
    }
    EXPECT_GT(accepted, 10u) << "copies must be drafted";
    EXPECT_TRUE(e->check().ok()) << e->check().message();
  }
}

TEST_F(SpeculationModelTest, SeveralRowsChangeTheLogitsWithinTheBound) {
  for (const std::string profile : {"dense", "minima"}) {
    const auto e = engine(profile);
    const Tokens text = *model::tokenize(*model_, testing::english_text(), true, false);
    const SessionId base = e->start().value();
    std::vector<float> unused;
    ASSERT_TRUE(e->feed(base, std::span(text).first(200), Logits::kNone, unused).ok());
    const SessionId alone = e->fork(base).value();
    const auto next = std::span(text).subspan(200, 8);
    const size_t vocabulary = size_t(e->vocabulary());
    std::vector<float> one_by_one;
    for (size_t i = 0; i < next.size(); ++i) {
      std::vector<float> row;
      const Feed feed{alone, next.subspan(i, 1), Logits::kLast};
      ASSERT_TRUE(e->step({&feed, 1}, row).ok());
      one_by_one.insert(one_by_one.end(), row.begin(), row.end());
    }
    for (const size_t rows : {2u, 4u, 8u}) {
      const SessionId together = e->fork(base).value();
      std::vector<float> logits;
      const Feed feed{together, next.first(rows), Logits::kAll};
      ASSERT_TRUE(e->step({&feed, 1}, logits).ok());
      float worst = 0;
      for (size_t i = 0; i < rows; ++i) {
        const auto a = std::span(one_by_one).subspan(i * vocabulary, vocabulary);
        const auto b = std::span(logits).subspan(i * vocabulary, vocabulary);
        for (size_t t = 0; t < vocabulary; ++t) worst = std::max(worst, std::fabs(a[t] - b[t]));
        EXPECT_LE(eval::compare_logits(a, b, -1).kl, rows <= 4 ? kRowKl : kManyRowsKl) << profile << ", row " << i;
      }
      if (rows <= 4) {
        EXPECT_LE(worst, kRowBound) << profile << ", " << rows << " rows";
      }
      e->finish(together);
    }
  }
}

}  // namespace
}  // namespace varve::engine
