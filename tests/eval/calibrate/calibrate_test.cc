// Calibration of small random models: every part runs, and what must be exact is.

#include "eval/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/calibrate/assign.h"
#include "eval/calibrate/local_error.h"
#include "eval/calibrate/record.h"
#include "support/tiny_engine.h"

namespace varve::eval {
namespace {

using testing::TinyEngine;
using testing::Tokens;

CalibrateOptions small_options() {
  CalibrateOptions o;
  o.base = TinyEngine::small_minima();
  o.shapes = {{64, 64}, {64, 128}};
  o.prefill_tokens = 448;
  o.eval_tokens = 64;
  o.measured_k = {"3", "2"};
  o.measured_v = {"2"};
  o.length_tokens = 131072;  // scratch weighs nothing there
  o.budget_ratio = 3.2;
  o.check_seeds = {1, 5};
  o.check_tokens = 512;  // pages must become old while it is read
  o.threads = 1;
  return o;
}

std::vector<TextIdentity> identities() { return {{"a.txt", "00", 3}, {"a.txt", "00", 7}}; }

double mean_kl(const std::vector<DivergenceSummary>& summaries) {
  double sum = 0;
  for (const DivergenceSummary& s : summaries) sum += s.mean;
  return sum / double(summaries.size());
}

class Calibrate : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = TinyEngine::load_typical(GetParam());
    ASSERT_NE(model_, nullptr);
    const auto engine = TinyEngine::make(model_, TinyEngine::options(*Profile::named("dense")));
    passages_ = {TinyEngine::tokens(*engine, 600, 1), TinyEngine::tokens(*engine, 600, 3)};
    held_out_ = TinyEngine::tokens(*engine, 600, 2);
  }
  Result<Calibration> run(const CalibrateOptions& o) { return calibrate(model_, passages_, held_out_, o); }

  std::shared_ptr<model::Model> model_;
  std::vector<Tokens> passages_;
  Tokens held_out_;
};

TEST_P(Calibrate, MeasuresEveryLayerAndMeetsTheBudget) {
  const CalibrateOptions options = small_options();
  const auto c = run(options);
  ASSERT_TRUE(c.ok()) << c.status().message();
  ASSERT_EQ(c->layers.size(), model_->info().kv_layers.size());
  for (const LayerCosts& l : c->layers) {
    SCOPED_TRACE(l.layer);
    ASSERT_EQ(l.k.size(), kCalibratedK.size());
    ASSERT_EQ(l.v.size(), kCalibratedV.size());
    EXPECT_EQ(l.centre, GetParam() == "qwen2" ? "rotary" : "post") << "keys with a bias";
    // The codec under test is what is measured: coarser is dearer, side by side.
    ASSERT_EQ(l.k[5].kl_by_passage.size(), passages_.size());
    EXPECT_NE(l.k[5].kl_by_passage[0], l.k[5].kl_by_passage[1]);
    for (size_t p = 0; p < passages_.size(); ++p) {
      EXPECT_GT(l.k[5].kl_by_passage[p], 1.5 * l.k[4].kl_by_passage[p]) << "k2 against k3";
    }
    EXPECT_FALSE(l.k[3].measured());
    EXPECT_GT(l.k_sensitivity, 0);
    EXPECT_GT(l.v_sensitivity, 0);
    for (const auto* side : {&l.k, &l.v}) {
      for (size_t i = 1; i < side->size(); ++i) {
        EXPECT_GE((*side)[i].kl, (*side)[i - 1].kl) << (*side)[i].codec;
        EXPECT_GT((*side)[i].error, (*side)[i - 1].error) << (*side)[i].codec;
      }
    }
  }
  // What was priced is what an engine allocates.
  const double ratio = double(c->dense_bytes) / double(c->physical_bytes);
  EXPECT_GE(ratio, options.budget_ratio);
  EXPECT_LE(c->physical_bytes, size_t(double(c->dense_bytes) / options.budget_ratio));
  const Price price(model_->info(), options.length_tokens, c->scratch_bytes);
  EXPECT_EQ(*price.physical_bytes(c->profile), c->physical_bytes);
  EXPECT_EQ(c->held_out.calibrated.size(), 2u);
  EXPECT_EQ(c->held_out.minima.size(), 2u);
  ASSERT_TRUE(c->shapes.back().uniform);
  if (c->minima_ratio >= options.budget_ratio) {
    EXPECT_LE(mean_kl(c->held_out.calibrated), mean_kl(c->held_out.minima));
  }
  EXPECT_EQ(c->held_out.compared, 512 - 512 / 3);
  EXPECT_GT(c->held_out.calibrated[0].mean, 0);
  EXPECT_NE(c->held_out.calibrated[0].mean, c->held_out.calibrated[1].mean) << "two rotation seeds";
  // Where the held-out text disagrees with the passages, the uniform formats are taken whatever the arms measured.
  const ShapeResult& chosen = c->shapes[c->chosen];
  for (const ShapeResult& s : c->shapes) {
    if (!s.reachable) continue;
    EXPECT_EQ(s.kl_by_passage.size(), passages_.size());
    EXPECT_NEAR(s.measured_kl, (s.kl_by_passage[0] + s.kl_by_passage[1]) / 2, 1e-12);
    if (c->held_out.refused.empty()) {
      EXPECT_LE(chosen.measured_kl, s.measured_kl);
    }
  }
}

TEST_P(Calibrate, AShortWindowHasOneFormatForAllItsPages) {
  CalibrateOptions options = small_options();
  options.budget_ratio = 3.4;
  const auto c = run(options);
  ASSERT_TRUE(c.ok()) << c.status().message();
  const int count = static_cast<int>(c->layers.size());
  for (int l = 0; l < count; ++l) {
    SCOPED_TRACE(l);
    const bool window = model_->info().kv_layers[size_t(l)].window > 0;
    EXPECT_EQ(c->layers[size_t(l)].one_format, window);
    const TierFormats formats = c->profile.layer_formats(l, count);
    EXPECT_EQ(formats.recent, window ? formats.stale1 : "int8");
    EXPECT_EQ(formats.centre, "auto");
  }
  EXPECT_NE(TinyEngine::make(model_, TinyEngine::options(c->profile)), nullptr);
}

TEST_P(Calibrate, FallsBackToMinimaWhenNoChoiceIsAsGood) {
  CalibrateOptions options = small_options();
  options.base.recent_tokens = 384;  // weighs nothing at this length, and leaves few old pages in what is measured
  options.shapes = {{64, 0}};
  const auto c = run(options);
  ASSERT_TRUE(c.ok()) << c.status().message();
  ASSERT_GE(c->minima_ratio, options.budget_ratio);
  ASSERT_EQ(c->shapes.size(), 2u);
  EXPECT_EQ(c->chosen, 1u);
  EXPECT_EQ(c->profile.digest(), options.base.digest());
  EXPECT_EQ(mean_kl(c->held_out.calibrated), mean_kl(c->held_out.minima));
  const auto profile = recorded_profile(*c, options, "tiny", identities(), {"b.txt", "11", 0});
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_NE(profile->description.find("the same formats in every layer"), std::string::npos) << profile->description;
}

class CalibrateRefuses : public Calibrate {};

TEST_P(CalibrateRefuses, AChoiceThatLosesOnTheHeldOutText) {
  // One token over and over says nothing about layers: what is fitted to it need not hold elsewhere.
  CalibrateOptions options = small_options();
  options.check_seeds = {1};
  options.prior_passages = 0;
  int refused = 0;
  for (int32_t token = 10; token < 20 && refused == 0; ++token) {
    SCOPED_TRACE(token);
    passages_ = {Tokens(512, token)};
    const auto c = run(options);
    ASSERT_TRUE(c.ok()) << c.status().message();
    const TextCheck& check = c->held_out;
    ASSERT_GE(c->minima_ratio, options.budget_ratio);
    EXPECT_LE(mean_kl(check.calibrated), mean_kl(check.minima));
    if (check.refused.empty()) continue;
    ++refused;
    EXPECT_GT(mean_kl(check.refused), mean_kl(check.calibrated));
    EXPECT_TRUE(c->shapes[c->chosen].uniform);
    EXPECT_EQ(c->profile.digest(), options.base.digest());
    EXPECT_LE(std::min(c->shapes[0].measured_kl, c->shapes[1].measured_kl), c->shapes[2].measured_kl)
        << "only the held-out text was against it";
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Only, CalibrateRefuses, ::testing::Values("llama"));

TEST_P(Calibrate, RepeatsBitForBit) {
  CalibrateOptions options = small_options();
  options.shapes.resize(1);
  const auto a = run(options), b = run(options);
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(a->profile.to_json(), b->profile.to_json());
  for (size_t l = 0; l < a->layers.size(); ++l) EXPECT_EQ(a->layers[l].k[3].kl, b->layers[l].k[3].kl);
}

TEST_P(Calibrate, ARatioOutOfReachNamesWhatIsReachable) {
  CalibrateOptions options = small_options();
  options.budget_ratio = 40;
  const Status s = run(options).status();
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("40x at 131072 tokens: the formats reach from"), std::string::npos) << s.message();
}

TEST_P(Calibrate, AKlBudgetIsHeldOnThePassages) {
  CalibrateOptions options = small_options();
  options.budget_ratio = 0;
  options.max_kl = 1e9;
  const auto anything = run(options);
  ASSERT_TRUE(anything.ok()) << anything.status().message();
  options.max_kl = 0.5 * anything->shapes[0].measured_kl;
  const auto half = run(options);
  ASSERT_TRUE(half.ok()) << half.status().message();
  ASSERT_EQ(half->shapes.size(), 1u) << "what was tried on the way is no candidate";
  EXPECT_LE(half->shapes[0].measured_kl, options.max_kl);
  EXPECT_GT(half->physical_bytes, anything->physical_bytes);
  options.max_kl = 1e-12;
  const Status s = run(options).status();
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(s.message().find("the least that was reached is"), std::string::npos) << s.message();
}

INSTANTIATE_TEST_SUITE_P(Architectures, Calibrate, ::testing::Values("llama", "qwen2", "gemma3"),
                         [](const auto& info) { return info.param; });

class CalibrateLlama : public Calibrate {};

TEST_P(CalibrateLlama, ShortTextsAndBadOptionsAreRefusedWithTheNumbers) {
  const auto refused = [&](auto change, const char* words) {
    CalibrateOptions options = small_options();
    change(options);
    const Status s = run(options).status();
    EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
  };
  refused([](CalibrateOptions& o) { o.prefill_tokens = 2000; },
          "a calibration passage has 600 tokens; 2064 are needed");
  refused([](CalibrateOptions& o) { o.check_tokens = 640; }, "the held-out text has 600 tokens; 640 are needed");
  refused([](CalibrateOptions& o) { o.eval_tokens = 100; }, "multiple of 64");
  refused([](CalibrateOptions& o) { o.prefill_tokens = 128; }, "it needs 192");
  refused([](CalibrateOptions& o) { o.measured_k = {"7"}; }, "codec 7 cannot be measured for keys");
  refused([](CalibrateOptions& o) { o.max_kl = 1; }, "either a byte budget or a KL budget");
}

TEST_P(CalibrateLlama, StopsWhenAsked) {
  CalibrateOptions options = small_options();
  int calls = 0;
  int64_t last = 0;
  options.progress = [&](const std::string&, int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    return ++calls < 4;
  };
  EXPECT_EQ(run(options).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls, 4);
}

TEST_P(CalibrateLlama, TheRecordSurvivesAndOtherModelsAreRefused) {
  const CalibrateOptions options = small_options();
  const auto c = run(options);
  ASSERT_TRUE(c.ok()) << c.status().message();
  const auto profile = recorded_profile(*c, options, "tiny", identities(), {"b.txt", "11", 0});
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  const auto again = Profile::from_json(profile->to_json());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->to_json(), profile->to_json());
  EXPECT_EQ(again->digest(), c->profile.digest()) << "the record is not part of the digest";
  EXPECT_EQ(again->model_digest, model_->info().digest);
  const auto record = nlohmann::json::parse(again->calibration);
  EXPECT_EQ(record["layers"].size(), model_->info().kv_layers.size());
  EXPECT_EQ(record["held_out"]["text"], "b.txt");
  ASSERT_EQ(record["passages"].size(), 2u);
  EXPECT_EQ(record["passages"][1]["offset"], 7);
  EXPECT_EQ(record["layers"][0]["k"]["3"]["kl_by_passage"].size(), 2u);

  EXPECT_NE(TinyEngine::make(model_, TinyEngine::options(*again)), nullptr);
  const auto other = TinyEngine::load({.architecture = "qwen3"});
  const auto refused = Engine::create(other, TinyEngine::options(*again));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  for (const auto& m : {model_, other}) {
    EXPECT_NE(refused.status().message().find(m->info().digest), std::string::npos) << refused.status().message();
  }
}

INSTANTIATE_TEST_SUITE_P(Only, CalibrateLlama, ::testing::Values("llama"));

CodecCost measured(const char* codec, double error, std::vector<double> kl) {
  return {.codec = codec, .error = error, .kl_by_passage = std::move(kl)};
}

/// Keys alone: values cost nothing here.
LayerCosts keys(std::vector<CodecCost> costs, bool one_format = false) {
  LayerCosts out;
  out.one_format = one_format;
  out.k = std::move(costs);
  return out;
}

TEST(FitCosts, AreOneSensitivityTimesTheErrors) {
  std::vector<LayerCosts> layers = {keys({{.codec = "8", .error = 1e-4},
                                          {.codec = "4", .error = 1e-2},
                                          measured("3", 4e-2, {1e-3, 3e-3}),    // .05 by error
                                          measured("2", 0.2, {5e-2, 1e-2})})};  // .15
  fit_costs(layers, 0);
  EXPECT_NEAR(layers[0].k_sensitivity, 0.1, 1e-12);
  EXPECT_EQ(layers[0].v_sensitivity, 0);
  for (const CodecCost& c : layers[0].k) EXPECT_NEAR(c.kl, 0.1 * c.error, 1e-12) << c.codec;
}

TEST(FitCosts, TheAverageLayerWeighsAsMuchAsSomePassages) {
  // The second layer's rows are ten times as large in square; what k3 costs is what has an average.
  const std::vector<LayerCosts> layers = {keys({measured("3", 0.1, {0, 2e-3}), {.codec = "2", .error = 0.4}}),
                                          keys({measured("3", 1.0, {8e-3, 6e-3}), {.codec = "2", .error = 4}})};
  std::vector<LayerCosts> fitted = layers;
  fit_costs(fitted, 2);  // as much as both passages: half way to the average of 1e-3 and 7e-3
  EXPECT_NEAR(fitted[0].k[0].kl, 2.5e-3, 1e-12);
  EXPECT_NEAR(fitted[0].k[1].kl, 1e-2, 1e-12);
  EXPECT_NEAR(fitted[0].k_sensitivity, 2.5e-2, 1e-12);
  EXPECT_NEAR(fitted[1].k[0].kl, 5.5e-3, 1e-12);
  EXPECT_NEAR(fitted[1].k[1].kl, 2.2e-2, 1e-12);

  fitted = layers;
  fitted[1].one_format = true;
  fit_costs(fitted, 2);
  EXPECT_NEAR(fitted[0].k[0].kl, 1e-3, 1e-12) << "layers with one format are another population";
  EXPECT_NEAR(fitted[1].k[0].kl, 7e-3, 1e-12);
}

TEST(FitCosts, NoiseNeverMakesACoarserCodecCheaper) {
  std::vector<LayerCosts> layers = {keys({{.codec = "8", .error = 1e-4},
                                          measured("4", 1e-2, {2e-3}),
                                          measured("3", 4e-2, {1e-3}),       // measured below k4
                                          {.codec = "2", .error = 3e-2}})};  // errs less than k3 on these rows
  fit_costs(layers, 1);
  const std::vector<CodecCost>& costs = layers[0].k;
  for (size_t i = 1; i < costs.size(); ++i) EXPECT_GE(costs[i].kl, costs[i - 1].kl) << costs[i].codec;
  EXPECT_EQ(costs[1].kl_by_passage[0], 2e-3) << "what was measured stays on record";
}

}  // namespace
}  // namespace varve::eval
