// Sampling from given logits: choices, bounds, history, grammars.

#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/text.h"
#include "support/chi_square.h"
#include "support/models.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

std::shared_ptr<Model> tiny() {
  const testing::TempDir directory;
  const std::string path = directory.file("tiny.gguf");
  EXPECT_TRUE(testing::write_tiny_model(path, {.tokenizer = "gpt2"}).ok());
  auto model = Model::load(path, {.vocab_only = true});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

class Sampling : public ::testing::Test {
 protected:
  std::unique_ptr<Sampler> sampler(const SamplerOptions& options) {
    auto made = Sampler::create(model_, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
  StatusCode refusal(const SamplerOptions& options) { return Sampler::create(model_, options).status().code(); }
  /// Logits that are `low` but for the given tokens.
  std::vector<float> logits(const std::map<int, float>& peaks, float low = -20) {
    std::vector<float> all(static_cast<size_t>(model_->info().vocabulary), low);
    for (const auto& [token, logit] : peaks) all[static_cast<size_t>(token)] = logit;
    return all;
  }
  int32_t byte(char c) {  // of the byte-level vocabulary
    return (*tokenize(*model_, std::string(1, c), false, false))[0];
  }

  std::shared_ptr<Model> model_ = tiny();
};

TEST_F(Sampling, GreedyTakesTheHighestAndTheLowestIdOnTies) {
  auto s = sampler({});
  EXPECT_EQ(*s->sample(logits({{7, 1}, {9, 3}, {200, 2}})), 9);
  EXPECT_EQ(*s->sample(logits({{50, 3}, {9, 3}, {200, 3}})), 9);
  EXPECT_EQ(*s->sample(logits({}, 0)), 0);
  EXPECT_EQ(*s->sample(logits({{4, -5}}, -INFINITY)), 4);
}

TEST_F(Sampling, LogitsThatAreNoNumbers) {
  for (const float temperature : {0.0f, 1.0f}) {
    auto s = sampler({.temperature = temperature});
    for (const float bad : {NAN, -NAN, INFINITY}) {
      auto token = s->sample(logits({{3, 5}, {100, bad}}));
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.status().code(), StatusCode::kInternal);
      EXPECT_NE(token.status().message().find("logit 100"), std::string::npos) << token.status().message();
    }
    EXPECT_EQ(s->sample(logits({}, -INFINITY)).status().code(), StatusCode::kInternal);
    EXPECT_EQ(s->sample(std::vector<float>(5)).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(s->sample({}).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(Sampling, FrequenciesFollowTheSoftmax) {
  auto s = sampler({.temperature = 1, .seed = 42});
  const auto l = logits({{10, std::log(6.0f)}, {20, std::log(3.0f)}, {30, std::log(1.0f)}}, -60);
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++counts[*s->sample(l)];
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [token, p] : std::map<int, double>{{10, 0.6}, {20, 0.3}, {30, 0.1}}) {
    const double sigma = std::sqrt(kDraws * p * (1 - p));
    EXPECT_NEAR(counts[token], kDraws * p, 5 * sigma) << token;
  }
}

TEST_F(Sampling, TemperatureAndTruncation) {
  const auto l = logits({{10, 4}, {20, 3}, {30, 2}});
  const auto seen = [&](SamplerOptions o) {
    o.seed = 3;
    auto s = sampler(o);
    std::map<int32_t, int> counts;
    for (int i = 0; i < 2000; ++i) ++counts[*s->sample(l)];
    return counts;
  };
  EXPECT_EQ(seen({.temperature = 1, .top_k = 1}).size(), 1u);
  EXPECT_EQ(seen({.temperature = 1, .top_k = 2}).size(), 2u);
  EXPECT_EQ(seen({.temperature = 1, .top_p = 0.5f}).size(), 1u);
  EXPECT_EQ(seen({.temperature = 1, .top_p = 0.8f}).size(), 2u);
  EXPECT_EQ(seen({.temperature = 1, .min_p = 0.3f}).size(), 2u);
  EXPECT_EQ(seen({.temperature = 1}).size(), 3u);
  EXPECT_GT(seen({.temperature = 0.3f})[10], seen({.temperature = 1})[10]);
  EXPECT_GT(seen({.temperature = 1})[10], seen({.temperature = 3})[10]);
}

TEST_F(Sampling, SeedsRepeat) {
  const auto l = logits({}, 0);
  const auto draw = [&](uint32_t seed) {
    auto s = sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(*s->sample(l));
    return tokens;
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
}

TEST_F(Sampling, PenaltiesRememberWhatWasAccepted) {
  const auto l = logits({{10, 2.0f}, {20, 1.5f}});
  auto repeat = sampler({.repeat_penalty = 2});
  EXPECT_EQ(*repeat->sample(l), 10);
  ASSERT_TRUE(repeat->accept(10).ok());
  EXPECT_EQ(*repeat->sample(l), 20);
  auto presence = sampler({.presence_penalty = 1});
  ASSERT_TRUE(presence->accept(10, /*generated=*/false).ok());
  EXPECT_EQ(*presence->sample(l), 20);
  auto forgetful = sampler({.penalty_tokens = 1, .presence_penalty = 1});
  ASSERT_TRUE(forgetful->accept(10).ok() && forgetful->accept(99).ok());
  EXPECT_EQ(*forgetful->sample(l), 10);
  EXPECT_EQ(repeat->accept(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(repeat->accept(model_->info().vocabulary).code(), StatusCode::kInvalidArgument);
}

/// What sample() draws, against what distribution() says it draws from.
void expect_drawn_from(Sampler& sampler, const std::vector<float>& logits) {
  const auto distribution = sampler.distribution(logits);
  ASSERT_TRUE(distribution.ok()) << distribution.status().message();
  constexpr int kDraws = 20000;
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[*sampler.sample(logits)];
  double chi = 0, sum = 0;
  int seen = 0, likely = 0;
  for (size_t i = 0; i < distribution->size(); ++i) {
    const auto& [token, p] = (*distribution)[i];
    if (i > 0) {
      EXPECT_GT(token, (*distribution)[i - 1].token);
    }
    sum += double(p);
    seen += counts[token];
    if (double(p) * kDraws < 5) continue;
    ++likely;
    chi += (counts[token] - double(p) * kDraws) * (counts[token] - double(p) * kDraws) / (double(p) * kDraws);
  }
  EXPECT_NEAR(sum, 1, 1e-4);
  EXPECT_EQ(seen, kDraws) << "a token that the distribution does not have";
  EXPECT_LT(chi, testing::chi_square_limit(likely - 1));
}

TEST_F(Sampling, TheDistributionIsWhatSamplesAreDrawnFrom) {
  const auto l = logits({{10, 4}, {20, 3.5f}, {30, 3}, {40, 2}, {50, 0}, {60, -2}}, -30);
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 1}, SamplerOptions{.temperature = 0.6f, .top_k = 3},
        SamplerOptions{.temperature = 1.4f, .top_p = 0.8f}, SamplerOptions{.temperature = 1, .min_p = 0.2f},
        SamplerOptions{.temperature = 1, .repeat_penalty = 2, .presence_penalty = 0.5f},
        SamplerOptions{.temperature = 1, .logit_bias = {{10, -INFINITY}, {60, 5}}}}) {
    SCOPED_TRACE(options.temperature);
    auto s = sampler(options);
    ASSERT_TRUE(s->accept(10).ok() && s->accept(30).ok());
    expect_drawn_from(*s, l);
  }
}

TEST_F(Sampling, TheDistributionUnderAGrammarCountsTheSecondDraw) {
  // The grammar is asked after the draw, and only a refusal makes it filter what truncation then sees.
  const auto l = logits({{byte('z'), 3}, {byte('a'), 2.5f}, {byte('b'), 1}, {byte('c'), 0}}, -30);
  for (const int top_k : {0, 2}) {
    SCOPED_TRACE(top_k);
    auto s = sampler({.temperature = 1, .top_k = top_k, .seed = 4, .grammar = {.text = "root ::= [a-c]+"}});
    expect_drawn_from(*s, l);
    const auto distribution = *s->distribution(l);
    EXPECT_EQ(distribution.size(), top_k == 2 ? 2u : 3u);
  }
}

TEST_F(Sampling, TheSecondRandomSequenceIsItsOwn) {
  const auto l = logits({}, 0);
  auto a = sampler({.temperature = 1, .seed = 5}), b = sampler({.temperature = 1, .seed = 5});
  double sum = 0;
  for (int i = 0; i < 200; ++i) {
    const double u = a->uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    ASSERT_TRUE(a->distribution(l).ok());
    EXPECT_EQ(*a->sample(l), *b->sample(l)) << "neither uniform() nor distribution() moves it";
  }
  EXPECT_NEAR(sum / 200, 0.5, 0.1);
  EXPECT_EQ(a->distribution(std::vector<float>(3)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(a->distribution(logits({{3, NAN}})).status().code(), StatusCode::kInternal);
}

TEST_F(Sampling, LogitBias) {
  auto s = sampler({.logit_bias = {{10, -INFINITY}, {30, 25}}});
  EXPECT_EQ(*s->sample(logits({{10, 9}, {20, 4}})), 30);
}

TEST_F(Sampling, OptionsOutOfBounds) {
  const auto kBad = StatusCode::kInvalidArgument;
  EXPECT_EQ(refusal({.temperature = -1}), kBad);
  EXPECT_EQ(refusal({.temperature = NAN}), kBad);
  EXPECT_EQ(refusal({.temperature = INFINITY}), kBad);
  EXPECT_EQ(refusal({.top_k = -1}), kBad);
  EXPECT_EQ(refusal({.top_p = 1.5f}), kBad);
  EXPECT_EQ(refusal({.top_p = NAN}), kBad);
  EXPECT_EQ(refusal({.min_p = -0.1f}), kBad);
  EXPECT_EQ(refusal({.penalty_tokens = -1}), kBad);
  EXPECT_EQ(refusal({.repeat_penalty = 0}), kBad);
  EXPECT_EQ(refusal({.frequency_penalty = INFINITY}), kBad);
  EXPECT_EQ(refusal({.seed = 0xffffffffu}), kBad);
  EXPECT_EQ(refusal({.logit_bias = {{-1, 0}}}), kBad);
  EXPECT_EQ(refusal({.logit_bias = {{model_->info().vocabulary, 0}}}), kBad);
  EXPECT_EQ(refusal({.logit_bias = {{1, NAN}}}), kBad);
  EXPECT_EQ(Sampler::create(nullptr, {}).status().code(), kBad);
}

TEST_F(Sampling, GrammarConstrains) {
  for (const float temperature : {0.0f, 1.0f}) {
    auto s = sampler({.temperature = temperature, .seed = 9, .grammar = {.text = "root ::= \"ab\" | \"ac\""}});
    const auto l = logits({{byte('z'), 9}, {byte('a'), 3}, {byte('c'), 2}, {byte('b'), 1}}, -30);
    EXPECT_EQ(*s->sample(l), byte('a'));
    ASSERT_TRUE(s->accept(byte('a')).ok());
    const int32_t second = *s->sample(l);
    EXPECT_TRUE(second == byte('b') || second == byte('c'));
    ASSERT_TRUE(s->accept(second).ok());
    EXPECT_TRUE(is_end_of_generation(*model_, *s->sample(l))) << "the grammar is complete";
    EXPECT_FALSE(s->accept(byte('q')).ok()) << "the grammar does not allow it";
  }
}

TEST_F(Sampling, LazyGrammarWaitsForItsTrigger) {
  SamplerOptions options;
  options.grammar = {.text = "root ::= \"!\" [0-9]", .lazy = true, .trigger_patterns = {"[\\s\\S]*?(!)[\\s\\S]*"}};
  auto s = sampler(options);
  const auto l = logits({{byte('z'), 9}, {byte('7'), 3}}, -30);
  EXPECT_EQ(*s->sample(l), byte('z'));
  ASSERT_TRUE(s->accept(byte('z')).ok());
  EXPECT_EQ(*s->sample(l), byte('z'));
  ASSERT_TRUE(s->accept(byte('!')).ok());
  EXPECT_EQ(*s->sample(l), byte('7'));
}

TEST_F(Sampling, GrammarsThatAreNone) {
  const auto kBad = StatusCode::kInvalidArgument;
  for (const std::string& text :
       {std::string("root"), std::string("root ::= missing"), std::string("other ::= \"a\""),
        std::string("root ::= root \"a\""), std::string("root ::= (\"a\""), std::string("root ::= [a"),
        std::string("root ::= \"a\"{1000000}"), std::string("root ::= \"\\x4\""), std::string("::= \"a\""),
        "root ::= " + std::string(100000, '('), std::string(2 << 20, ' ')}) {
    EXPECT_EQ(refusal({.grammar = {.text = text}}), kBad) << text.substr(0, 40);
  }
  EXPECT_EQ(refusal({.grammar = {.text = "root ::= \"a\"", .lazy = true, .trigger_patterns = {"(["}}}), kBad);
}

}  // namespace
}  // namespace varve::model
