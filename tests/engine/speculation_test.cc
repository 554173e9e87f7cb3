// Speculative decoding through the engine: the answer is the one that plain decoding gives, and the session holds it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include "engine/generate.h"
#include "engine/speculation/lookup.h"
#include "engine/speculation/model_drafter.h"
#include "model/text.h"
#include "support/chi_square.h"
#include "support/tiny_engine.h"

namespace varve::engine {
namespace {

using testing::TinyEngine;
using testing::Tokens;

/// Knows the answer, and spoils a token of each draft where `random` says so.
class Oracle final : public Drafter {
 public:
  Oracle(Tokens truth, int vocabulary, uint32_t seed, int spoil_in)
      : truth_(std::move(truth)), vocabulary_(vocabulary), spoil_in_(spoil_in), random_(seed) {}
  const char* name() const override { return "oracle"; }
  Status begin(std::span<const int32_t> history) override {
    begun_ = int(history.size());
    return {};
  }
  Status draft(std::span<const int32_t> history, int most, Draft& draft) override {
    draft.clear();
    EXPECT_GT(int(history.size()), begun_);
    // Behind a near tie (see near_tie) the answer may be another one, which the oracle does not know.
    if (!std::equal(history.begin(), history.end(), truth_.begin())) return {};
    for (size_t i = history.size(); i < truth_.size() && int(draft.tokens.size()) < most; ++i) {
      const bool spoil = spoil_in_ != 0 && random_() % uint32_t(spoil_in_) == 0;
      draft.tokens.push_back(spoil ? (truth_[i] + 1) % vocabulary_ : truth_[i]);
    }
    longest_ = std::max(longest_, int(draft.tokens.size()));
    return {};
  }
  const char* reason() const override { return "over"; }
  int longest() const { return longest_; }

 private:
  const Tokens truth_;
  const int vocabulary_, spoil_in_;
  std::mt19937 random_;
  int begun_ = 0, longest_ = 0;
};

struct Outcome {
  Generation generation;
  Tokens session;             ///< what it holds afterwards
  std::vector<float> logits;  ///< after feeding one more token
};

class SpeculationTest : public ::testing::Test {
 protected:
  static std::shared_ptr<model::Model> model() {
    static const std::shared_ptr<model::Model> loaded = TinyEngine::load(exact({}));
    return loaded;
  }
  /// Weights in fp32: ggml rounds no activation, so rows differ by the order of sums alone.
  static testing::TinySpec exact(testing::TinySpec spec) {
    spec.matrix_type = GGML_TYPE_F32;
    spec.seed += 100;
    return spec;
  }
  /// Answers of random models must not end by chance.
  static model::SamplerOptions endless(const Engine& e, model::SamplerOptions options) {
    for (int32_t t = 0; t < e.vocabulary(); ++t) {
      if (model::is_end_of_generation(*e.model(), t)) options.logit_bias.emplace_back(t, -INFINITY);
    }
    return options;
  }
  static Profile paged(const std::string& name, int page_tokens = 64) {
    Profile p = *Profile::load(name);
    p.page_tokens = page_tokens;
    return p;
  }
  static std::unique_ptr<Engine> engine(const Profile& p, const std::shared_ptr<model::Model>& m = model()) {
    return TinyEngine::make(m, TinyEngine::options(p));
  }
  static std::unique_ptr<model::Sampler> sampler(const Engine& e, const model::SamplerOptions& options) {
    auto made = model::Sampler::create(e.model(), endless(e, options));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }

  static Outcome answer(Engine& e, const Tokens& prompt, int tokens, const Speculation& speculation,
                        const model::SamplerOptions& sampling = {}) {
    const SessionId session = e.start().value();
    const auto first = TinyEngine::feed(e, session, prompt);
    const auto s = sampler(e, sampling);
    auto made = generate(e, session, *s, first, {.max_tokens = tokens, .speculation = speculation});
    EXPECT_TRUE(made.ok()) << made.status().message();
    Outcome out;
    if (!made.ok()) return out;
    out.generation = std::move(*made);
    out.session.assign(e.tokens(session).begin(), e.tokens(session).end());
    EXPECT_TRUE(e.check().ok()) << e.check().message();
    out.logits = TinyEngine::feed(e, session, TinyEngine::tokens(e, 1, 99));
    e.finish(session);
    return out;
  }

  /// Whether two answers part where the two best logits of plain decoding are as good as equal: there the rounding of
  /// rows, and of what the cache then codes, may decide.
  static bool near_tie(Engine& e, size_t prompt, const Tokens& plain, const Tokens& other) {
    const size_t same =
        size_t(std::mismatch(plain.begin(), plain.end(), other.begin(), other.end()).first - plain.begin());
    if (same == plain.size()) return false;
    const SessionId session = e.start().value();
    auto logits = TinyEngine::feed(e, session, std::span(plain).first(prompt));
    for (size_t i = prompt; i < same; ++i) logits = TinyEngine::feed(e, session, std::span(plain).subspan(i, 1));
    e.finish(session);
    for (int32_t t = 0; t < e.vocabulary(); ++t) {
      if (model::is_end_of_generation(*e.model(), t)) logits[size_t(t)] = -INFINITY;
    }
    std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
    return logits[0] - logits[1] < 0.01f;
  }

  static void expect_same(const Outcome& plain, const Outcome& other, double kl = 1e-5) {
    EXPECT_EQ(plain.session, other.session);
    EXPECT_EQ(plain.generation.text, other.generation.text);
    EXPECT_EQ(plain.generation.tokens, other.generation.tokens);
    EXPECT_EQ(plain.generation.reason, other.generation.reason);
    if (plain.session == other.session) {
      EXPECT_LE(TinyEngine::kl(plain.logits, other.logits), kl);
    }
    const SpeculationStats& s = other.generation.speculation;
    EXPECT_LE(s.accepted, s.drafted);
    // Every step gives a token of its own besides the drafts accepted, but for a last step whose last draft ends the
    // answer; the first token comes from the prompt.
    const uint64_t tokens = s.steps + s.accepted + 1;
    EXPECT_TRUE(tokens == uint64_t(other.generation.tokens) || tokens == uint64_t(other.generation.tokens) + 1);
  }
};

TEST_F(SpeculationTest, DraftsOfEveryLengthAtEveryOffsetLeaveNoTrace) {
  const auto gemma = TinyEngine::load(exact({.architecture = "gemma3", .layers = 7, .tied = true}));
  int answers = 0, ties = 0;
  for (const auto& m : {model(), gemma}) {
    for (const Profile& profile : {paged("dense"), paged("dense", 128), paged("int8", 128), paged("k8v4")}) {
      const auto e = engine(profile, m);
      // Prompts that end before, at and behind the edges of tiles and pages; the windowed model lets pages go.
      for (const int length : {1, 60, 63, 64, 127, 128, 575}) {
        SCOPED_TRACE(::testing::Message() << m->info().architecture << " " << profile.name << " pages of "
                                          << profile.page_tokens << ", prompt of " << length);
        const Tokens prompt = TinyEngine::tokens(*e, length, uint32_t(length));
        const Outcome plain = answer(*e, prompt, 72, {});
        ASSERT_GE(plain.session.size(), prompt.size() + 30) << "the answer ends too early to mean anything";
        // Steps of more than 4 rows read coded pages by other kernels, whose rounding a code may magnify.
        const int longest = profile.is_dense() ? 31 : 3;
        for (const int spoil_in : {0, 4}) {
          Oracle oracle(plain.session, e->vocabulary(), uint32_t(length + spoil_in), spoil_in);
          const Outcome fast = answer(*e, prompt, 72, {.drafter = &oracle, .draft_tokens = longest, .row_cost = 0});
          ++answers;
          if (fast.session != plain.session && near_tie(*e, prompt.size(), plain.session, fast.session)) {
            ++ties;
            continue;
          }
          expect_same(plain, fast);
          EXPECT_GT(fast.generation.speculation.accepted, 20u);
          if (spoil_in == 0) {
            EXPECT_GT(oracle.longest(), longest / 2);
            EXPECT_EQ(fast.generation.speculation.accepted, fast.generation.speculation.drafted);
          }
        }
      }
    }
  }
  EXPECT_LE(ties, answers / 20) << "of " << answers;
}

TEST_F(SpeculationTest, LookupGivesThePlainAnswerAlsoWhenItIsSampled) {
  const auto e = engine(paged("int8"));
  const auto lookup = PromptLookup::create({.least_ngram = 1}).value();
  for (const model::SamplerOptions& sampling :
       {model::SamplerOptions{}, model::SamplerOptions{.repeat_penalty = 1.3f},
        model::SamplerOptions{.temperature = 0.5f, .seed = 3},
        model::SamplerOptions{
            .temperature = 0.7f, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f, .frequency_penalty = 0.2f, .seed = 4}}) {
    SCOPED_TRACE(::testing::Message() << sampling.temperature << " " << sampling.repeat_penalty);
    Tokens prompt = TinyEngine::tokens(*e, 50, 5);
    prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 30);
    const Outcome plain = answer(*e, prompt, 80, {}, sampling);
    const Outcome fast = answer(*e, prompt, 80, {.drafter = lookup.get(), .row_cost = 0}, sampling);
    expect_same(plain, fast);
    EXPECT_GT(fast.generation.speculation.drafted, 0u);
  }
}

TEST_F(SpeculationTest, PagesMayMoveWhileDraftsComeAndGo) {
  const auto e = engine(TinyEngine::small_minima());
  const Tokens prompt = TinyEngine::tokens(*e, 200, 11);
  const Outcome plain = answer(*e, prompt, 150, {});
  for (const int spoil_in : {0, 3}) {
    SCOPED_TRACE(spoil_in);
    // An oracle that is not asked to know: pages change tier at other steps, so the answers may part.
    const auto lookup = PromptLookup::create({.least_ngram = 1}).value();
    const uint64_t before = e->stats().transitions;
    const Outcome fast = answer(*e, prompt, 150, {.drafter = lookup.get(), .draft_tokens = 7, .row_cost = 0});
    EXPECT_EQ(fast.generation.tokens, plain.generation.tokens);
    EXPECT_EQ(fast.session.size(), plain.session.size());
    EXPECT_GE(e->stats().transitions - before, 3u);
    EXPECT_TRUE(e->stats().fallbacks.empty());
  }
}

TEST_F(SpeculationTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const auto e = engine(paged("dense"));
  const Tokens prompt = TinyEngine::tokens(*e, 60, 21);
  for (const float temperature : {0.0f, 0.9f}) {
    SCOPED_TRACE(temperature);
    const model::SamplerOptions sampling{.temperature = temperature, .top_k = 40, .seed = 5};
    auto drafter = ModelDrafter::create(engine(paged("dense")), *model(), sampling);
    ASSERT_TRUE(drafter.ok()) << drafter.status().message();
    const Outcome plain = answer(*e, prompt, 70, {}, sampling);
    for (int round = 0; round < 2; ++round) {  // the second time its session is cut back to the prompt
      const Outcome fast = answer(*e, prompt, 70, {.drafter = drafter->get(), .row_cost = 0}, sampling);
      if (temperature == 0) expect_same(plain, fast);
      const SpeculationStats& s = fast.generation.speculation;
      EXPECT_GE(s.acceptance(), temperature == 0 ? 1.0 : 0.9);
      EXPECT_GT(s.drafted, 20u);
      EXPECT_GT(s.draft_kv_bytes, 0u);
      EXPECT_EQ(s.drafter, "draft");
    }
  }
}

TEST_F(SpeculationTest, AModelThatIsWrongCostsStepsAndChangesNothing) {
  const auto other = TinyEngine::load(exact({.layers = 1, .heads = 2, .kv_heads = 1, .seed = 77}));
  const auto e = engine(paged("int8"));
  const Tokens prompt = TinyEngine::tokens(*e, 60, 22);
  const Outcome plain = answer(*e, prompt, 90, {});
  auto drafter = ModelDrafter::create(engine(paged("dense"), other), *model(), {});
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  const Outcome fast = answer(*e, prompt, 90, {.drafter = drafter->get()});
  expect_same(plain, fast);
  const SpeculationStats& s = fast.generation.speculation;
  EXPECT_LT(s.drafted, 40u) << "drafting must stop";
  EXPECT_GT(s.without.at("paused"), 40u);
}

/// Pairs of tokens from the whole path, drafted from another distribution, against the product of the model's own
/// distributions.
TEST_F(SpeculationTest, SampledAnswersHaveTheModelsDistribution) {
  const auto e = engine(paged("dense"));
  const Tokens prompt = TinyEngine::tokens(*e, 20, 23);
  const SessionId base = e->start().value();
  const auto first = TinyEngine::feed(*e, base, prompt);
  const model::SamplerOptions sampling{.temperature = 1.5f, .top_k = 4, .seed = 1};

  std::map<std::pair<int32_t, int32_t>, double> expected;
  const auto exact = sampler(*e, sampling);
  const auto first_tokens = exact->distribution(first);
  ASSERT_TRUE(first_tokens.ok());
  for (const auto& [a, p] : *first_tokens) {
    const SessionId fork = e->fork(base).value();
    const auto next = TinyEngine::feed(*e, fork, Tokens{a});
    const auto second_tokens = exact->distribution(next);
    ASSERT_TRUE(second_tokens.ok());
    for (const auto& [b, q] : *second_tokens) expected[{a, b}] = double(p) * double(q);
    e->finish(fork);
  }

  std::map<std::pair<int32_t, int32_t>, int> counts;
  uint64_t drafted = 0, accepted = 0;
  constexpr int kDraws = 1500;
  const auto draft_engine = TinyEngine::options(paged("dense"));
  for (uint32_t seed = 0; seed < kDraws; ++seed) {
    model::SamplerOptions own = sampling;
    own.seed = seed;
    // The same weights, but flatter and over more tokens: often near, never right by itself.
    const model::SamplerOptions flat{.temperature = 3, .top_k = 7, .seed = seed};
    auto drafter = ModelDrafter::create(TinyEngine::make(model(), draft_engine), *model(), flat);
    ASSERT_TRUE(drafter.ok());
    const SessionId fork = e->fork(base).value();
    const auto s = sampler(*e, own);
    const auto made =
        generate(*e, fork, *s, first, {.max_tokens = 3, .speculation = {.drafter = drafter->get(), .row_cost = 0}});
    ASSERT_TRUE(made.ok()) << made.status().message();
    const auto held = e->tokens(fork);
    if (held.size() >= prompt.size() + 2) ++counts[{held[prompt.size()], held[prompt.size() + 1]}];
    drafted += made->speculation.drafted;
    accepted += made->speculation.accepted;
    e->finish(fork);
  }
  EXPECT_GT(drafted, uint64_t(kDraws) / 2);
  EXPECT_GT(accepted, drafted / 10);
  EXPECT_LT(accepted, drafted * 9 / 10);
  double chi = 0;
  int seen = 0;
  for (const auto& [pair, p] : expected) {
    const double wanted = p * kDraws;
    chi += (counts[pair] - wanted) * (counts[pair] - wanted) / wanted;
    seen += counts[pair];
  }
  EXPECT_EQ(seen, kDraws) << "a pair that cannot occur";
  EXPECT_LT(chi, testing::chi_square_limit(int(expected.size()) - 1));
}

TEST_F(SpeculationTest, StopsLeaveTheSessionAsPlainDecodingDoes) {
  const auto e = engine(paged("int8"));
  const Tokens prompt = TinyEngine::tokens(*e, 61, 31);
  const Outcome whole = answer(*e, prompt, 60, {});
  const auto stopped = [&](Drafter* drafter, GenerateOptions options) {
    const SessionId session = e->start().value();
    const auto first = TinyEngine::feed(*e, session, prompt);
    const auto s = sampler(*e, {});
    options.speculation = {.drafter = drafter, .draft_tokens = 9, .row_cost = 0};
    auto made = generate(*e, session, *s, first, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    Outcome out;
    out.generation = std::move(*made);
    out.session.assign(e->tokens(session).begin(), e->tokens(session).end());
    e->finish(session);
    return out;
  };
  Oracle oracle(whole.session, e->vocabulary(), 1, 0);
  for (int tokens = 1; tokens < 24; ++tokens) {
    SCOPED_TRACE(tokens);
    const Outcome plain = stopped(nullptr, {.max_tokens = tokens}), fast = stopped(&oracle, {.max_tokens = tokens});
    EXPECT_EQ(plain.session, fast.session);
    EXPECT_EQ(plain.generation.text, fast.generation.text);
    EXPECT_EQ(fast.generation.tokens, tokens);
    int left = tokens;
    const auto stop_at = [&](std::string_view) { return --left > 0; };
    const Outcome plain_caller = stopped(nullptr, {.max_tokens = 50, .on_text = stop_at});
    left = tokens;
    const Outcome fast_caller = stopped(&oracle, {.max_tokens = 50, .on_text = stop_at});
    EXPECT_EQ(plain_caller.session, fast_caller.session);
    EXPECT_EQ(plain_caller.generation.reason, fast_caller.generation.reason);
  }
  std::string stop;  // the last letter or digit to appear first
  for (const char c : whole.generation.text.substr(0, 60)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 && whole.generation.text.find(c) > 8) stop = c;
  }
  ASSERT_FALSE(stop.empty());
  const Outcome plain = stopped(nullptr, {.max_tokens = 50, .stops = {stop}});
  const Outcome fast = stopped(&oracle, {.max_tokens = 50, .stops = {stop}});
  EXPECT_EQ(plain.generation.reason, StopReason::kStopString);
  EXPECT_EQ(fast.generation.reason, StopReason::kStopString);
  EXPECT_EQ(plain.session, fast.session);
  EXPECT_EQ(plain.generation.text, fast.generation.text);
}

TEST_F(SpeculationTest, AFullContextEndsTheAnswerAtTheSameToken) {
  EngineOptions options = TinyEngine::options(paged("int8"));
  options.context_tokens = 90;
  const auto e = TinyEngine::make(model(), options);
  const Tokens prompt = TinyEngine::tokens(*e, 70, 41);
  const auto run = [&](Drafter* drafter) {
    const SessionId session = e->start().value();
    const auto first = TinyEngine::feed(*e, session, prompt);
    const auto s = sampler(*e, {});
    auto made = generate(*e, session, *s, first, {.speculation = {.drafter = drafter, .row_cost = 0}});
    EXPECT_TRUE(made.ok()) << made.status().message();
    Tokens held(e->tokens(session).begin(), e->tokens(session).end());
    e->finish(session);
    return std::pair(std::move(*made), held);
  };
  const auto [plain, plain_tokens] = run(nullptr);
  ASSERT_EQ(plain.reason, StopReason::kContextFull);
  Oracle oracle(plain_tokens, e->vocabulary(), 1, 5);
  const auto [fast, fast_tokens] = run(&oracle);
  EXPECT_EQ(fast.reason, StopReason::kContextFull);
  EXPECT_EQ(fast_tokens, plain_tokens);
  EXPECT_EQ(fast.text, plain.text);
}

TEST_F(SpeculationTest, VocabulariesThatDifferAreRefusedWithTheNumbers) {
  const auto bpe = TinyEngine::load({.architecture = "qwen2", .tokenizer = "gpt2", .qkv_bias = true});
  const auto refused = ModelDrafter::create(engine(paged("dense"), bpe), *model(), {});
  ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  for (const int n : {model()->info().vocabulary, bpe->info().vocabulary}) {
    EXPECT_NE(refused.status().message().find(std::to_string(n)), std::string::npos) << refused.status().message();
  }
}

TEST_F(SpeculationTest, NumbersOutOfBounds) {
  const auto e = engine(paged("dense"));
  const SessionId session = e->start().value();
  const auto first = TinyEngine::feed(*e, session, TinyEngine::tokens(*e, 5, 1));
  const auto s = sampler(*e, {});
  const auto refusal = [&](const GenerateOptions& options) {
    return generate(*e, session, *s, first, options).status().code();
  };
  for (const int bad : {0, -1, Speculation::kMostDraftTokens + 1}) {
    EXPECT_EQ(refusal({.speculation = {.draft_tokens = bad}}), StatusCode::kInvalidArgument) << bad;
  }
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(refusal({.speculation = {.row_cost = bad}}), StatusCode::kInvalidArgument) << bad;
  }
  for (const double bad : {-0.5, 11.0, std::nan("")}) {
    EXPECT_EQ(refusal({.contrast = {.weight = bad}}), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(refusal({.contrast = {.tokens = 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal({.contrast = {.weight = 0.5}}), StatusCode::kInvalidArgument) << "no logits of a prior";
  EXPECT_EQ(e->tokens(session).size(), 5u);
  EXPECT_EQ(e->revocable_tokens(session + 1, 1), 0);
}

}  // namespace
}  // namespace varve::engine
