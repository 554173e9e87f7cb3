// Contrastive decoding: the formula on given logits, and its sessions end to end.

#include "engine/contrast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/generate.h"
#include "engine/speculation/lookup.h"
#include "model/text.h"
#include "support/tiny_engine.h"

namespace varve::engine {
namespace {

using testing::TinyEngine;
using testing::Tokens;

TEST(Contrast, WhatTheContextChangedCountsMore) {
  std::vector<float> logits = {2, 1.5f, -1, -INFINITY, 4, NAN};
  const std::vector<float> prior = {2, 0.5f, -3, 1, -INFINITY, 0};
  apply_contrast(logits, prior, 0.5);
  EXPECT_FLOAT_EQ(logits[0], 2) << "unchanged by the context: unchanged";
  EXPECT_FLOAT_EQ(logits[1], 2);
  EXPECT_FLOAT_EQ(logits[2], 0);
  EXPECT_EQ(logits[3], -INFINITY) << "excluded stays excluded";
  EXPECT_EQ(logits[4], 4) << "a prior of -infinity says nothing about how much";
  EXPECT_TRUE(std::isnan(logits[5])) << "the sampler must see it";
}

TEST(Contrast, ItCanTurnTheChoice) {
  std::vector<float> logits = {3.0f, 2.9f};
  apply_contrast(logits, std::vector<float>{3.5f, 1.0f}, 0.5);
  EXPECT_GT(logits[1], logits[0]);
}

class ContrastTest : public ::testing::Test {
 protected:
  struct Outcome {
    Generation generation;
    Tokens session, prior;
  };

  Outcome answer(const Tokens& prompt, const Tokens& question, double weight, int contrast_tokens, int tokens,
                 Drafter* drafter = nullptr) {
    Outcome out;
    const SessionId session = engine_->start().value(), prior = engine_->start().value();
    const auto first = TinyEngine::feed(*engine_, session, prompt);
    const auto prior_first = TinyEngine::feed(*engine_, prior, question);
    model::SamplerOptions endless;  // answers of random models must not end by chance
    for (const int32_t t : ends()) endless.logit_bias.emplace_back(t, -INFINITY);
    const auto sampler = model::Sampler::create(engine_->model(), endless).value();
    auto made = generate(
        *engine_, session, *sampler, first,
        {.max_tokens = tokens,
         .speculation = {.drafter = drafter, .draft_tokens = 5, .row_cost = 0},
         .contrast = {.weight = weight, .tokens = contrast_tokens, .prior = prior, .prior_logits = prior_first}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    out.generation = std::move(*made);
    out.session.assign(engine_->tokens(session).begin(), engine_->tokens(session).end());
    out.prior.assign(engine_->tokens(prior).begin(), engine_->tokens(prior).end());
    engine_->finish(session);
    engine_->finish(prior);
    EXPECT_TRUE(engine_->check().ok()) << engine_->check().message();
    return out;
  }

  Tokens ends() const {
    Tokens out;
    for (int32_t t = 0; t < engine_->vocabulary(); ++t) {
      if (model::is_end_of_generation(*model_, t)) out.push_back(t);
    }
    return out;
  }

  /// The same by hand: two sessions, one token at a time.
  Tokens by_hand(const Tokens& prompt, const Tokens& question, double weight, int contrast_tokens, int tokens) {
    const SessionId session = engine_->start().value(), prior = engine_->start().value();
    auto logits = TinyEngine::feed(*engine_, session, prompt);
    auto prior_logits = TinyEngine::feed(*engine_, prior, question);
    Tokens out;
    for (int i = 0; i < tokens; ++i) {
      if (i < contrast_tokens) {
        for (size_t t = 0; t < logits.size(); ++t) {
          logits[t] = float((1 + weight) * double(logits[t]) - weight * double(prior_logits[t]));
        }
      }
      for (const int32_t t : ends()) logits[size_t(t)] = -INFINITY;
      out.push_back(int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      logits = TinyEngine::feed(*engine_, session, Tokens{out.back()});
      if (i + 1 < contrast_tokens) prior_logits = TinyEngine::feed(*engine_, prior, Tokens{out.back()});
    }
    engine_->finish(session);
    engine_->finish(prior);
    return out;
  }

  std::shared_ptr<model::Model> model_ = TinyEngine::load({.matrix_type = GGML_TYPE_F32, .seed = 101});
  std::unique_ptr<Engine> engine_ = TinyEngine::make(model_, TinyEngine::options(*Profile::load("dense")));
};

TEST_F(ContrastTest, TheAnswerIsTheOneComputedByHand) {
  const Tokens prompt = TinyEngine::tokens(*engine_, 90, 1);
  const Tokens question(prompt.end() - 20, prompt.end());
  for (const int contrast_tokens : {1, 6, 32}) {
    SCOPED_TRACE(contrast_tokens);
    const Tokens expected = by_hand(prompt, question, 0.5, contrast_tokens, 40);
    const Outcome out = answer(prompt, question, 0.5, contrast_tokens, 41);
    ASSERT_GT(out.generation.tokens, 10) << "the answer ends too early to mean anything";
    const Tokens got(out.session.begin() + ptrdiff_t(prompt.size()), out.session.end());
    ASSERT_LE(got.size(), expected.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
    EXPECT_EQ(out.generation.contrasted, std::min(contrast_tokens, out.generation.tokens));
    EXPECT_EQ(out.prior.size(), question.size() + size_t(contrast_tokens - 1))
        << "the prior reads what it is asked about";
  }
}

TEST_F(ContrastTest, ItChangesTheAnswerAndIsOffAtZero) {
  const Tokens prompt = TinyEngine::tokens(*engine_, 90, 2);
  const Tokens question(prompt.end() - 20, prompt.end());
  const Outcome plain = answer(prompt, question, 0, 32, 40), strong = answer(prompt, question, 3, 32, 40);
  EXPECT_NE(plain.session, strong.session);
  EXPECT_EQ(plain.generation.contrasted, 0);
  EXPECT_EQ(plain.prior, question) << "nothing was fed to the prior";
}

TEST_F(ContrastTest, WithDraftsTheAnswerIsTheSame) {
  const auto lookup = PromptLookup::create({.least_ngram = 1}).value();
  Tokens prompt = TinyEngine::tokens(*engine_, 60, 3);
  prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 30);
  const Tokens question(prompt.end() - 20, prompt.end());
  for (const int contrast_tokens : {5, 32}) {
    const Outcome plain = answer(prompt, question, 0.5, contrast_tokens, 60);
    const Outcome fast = answer(prompt, question, 0.5, contrast_tokens, 60, lookup.get());
    EXPECT_EQ(plain.session, fast.session);
    EXPECT_EQ(plain.generation.text, fast.generation.text);
    EXPECT_EQ(plain.generation.contrasted, fast.generation.contrasted);
    EXPECT_GT(fast.generation.speculation.drafted, 0u);
    EXPECT_TRUE(std::equal(plain.prior.begin(), plain.prior.end(), fast.prior.begin()));
  }
}

}  // namespace
}  // namespace varve::engine
