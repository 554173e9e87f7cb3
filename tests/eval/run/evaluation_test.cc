// Whole evaluations over a small random model: the control, going on after a stop, both modes, peers, bad input.

#include "eval/run/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "eval/report/summary.h"
#include "support/models.h"
#include "support/temp_dir.h"
#include "support/texts.h"
#include "support/tiny_engine.h"

namespace varve::eval {
namespace {

using varve::testing::TempDir;
using varve::testing::TinyEngine;

std::vector<ArmSpec> arms(const std::vector<std::string>& names, bool kld) {
  const auto find = [](const std::string& name) -> Result<Profile> {
    if (name == "small") return TinyEngine::small_minima();
    return Profile::load(name);
  };
  auto parsed = parse_arms(names, find, kld);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

Document prose() {
  std::string text;
  for (int i = 0; i < 8; ++i) text += "Part " + std::to_string(i) + ". " + testing::english_text() + "\n\n";
  return {.name = "english", .text = text};
}

EvalOptions kld_options(const std::vector<std::string>& names) {
  EvalOptions o;
  o.arms = arms(names, true);
  o.lengths = {640};
  o.n = 2;
  o.documents = {prose()};
  o.threads = 1;
  return o;
}

EvalOptions task_options(const std::vector<std::string>& names) {
  EvalOptions o;
  o.suite = "natural";
  o.tasks = {"depth_sweep"};
  o.arms = arms(names, false);
  o.lengths = {3000};
  o.n = 1;
  o.documents = {prose()};
  o.threads = 1;
  return o;
}

/// Runs to the end, or until `stop_after` calls of the progress; returns the status of the run.
Status run(const std::shared_ptr<model::Model>& model, const EvalOptions& options, const std::string& directory,
           int stop_after = -1) {
  auto evaluation = Evaluation::prepare(model, options, directory);
  if (!evaluation.ok()) return evaluation.status();
  int calls = 0;
  return (*evaluation)->run([&](const std::string&, int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    return stop_after < 0 || ++calls <= stop_after;
  });
}

std::string summary_of(const std::shared_ptr<model::Model>& model, const EvalOptions& options,
                       const std::string& directory) {
  const auto evaluation = Evaluation::prepare(model, options, directory);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status().message();
  if (!evaluation.ok()) return "";
  EXPECT_EQ((*evaluation)->left(), 0);
  const auto identity = *run_identity(*model, options);
  return summary_json(summarize_records(identity, (*evaluation)->store().records()), identity, "c").dump(1);
}

const ArmRow& row_of(const Summary& summary, const std::string& arm) {
  return *std::ranges::find(summary.arms, arm, &ArmRow::arm);
}

Summary evaluate(const std::shared_ptr<model::Model>& model, const EvalOptions& options) {
  const TempDir dir;
  const Status s = run(model, options, dir.file("out"));
  EXPECT_TRUE(s.ok()) << s.message();
  const auto evaluation = Evaluation::prepare(model, options, dir.file("out"));
  EXPECT_TRUE(evaluation.ok()) << evaluation.status().message();
  return summarize_records(*run_identity(*model, options), (*evaluation)->store().records());
}

TEST(Evaluation, TheControlIsExactlyZeroAndCompressionIsNot) {
  const auto model = TinyEngine::load();
  for (const bool kld : {true, false}) {
    const Summary s = evaluate(model, kld ? kld_options({"dense2", "floor", "small", "sabotage"})
                                          : task_options({"dense2", "small", "sabotage"}));
    EXPECT_GT(row_of(s, "dense2").n, 0);
    EXPECT_EQ(row_of(s, "dense2").kld_max, 0);
    EXPECT_EQ(row_of(s, "dense2").same_top1, 1);
    EXPECT_EQ(row_of(s, "dense2").ppl_ratio, 1);
    EXPECT_GT(row_of(s, "small").kld_mean, 0);
    EXPECT_GT(row_of(s, "sabotage").kld_mean, row_of(s, "small").kld_mean);
    EXPECT_LT(row_of(s, "small").bytes_per_token, row_of(s, "dense").bytes_per_token);
    for (const TaskRow& t : s.tasks) {
      if (t.arm != "dense2") continue;
      EXPECT_EQ(t.wins + t.losses, 0);
    }
  }
}

TEST(Evaluation, ComparesWhatItSays) {
  const auto model = TinyEngine::load();
  const EvalOptions options = kld_options({"small"});
  const Summary s = evaluate(model, options);
  // 640 tokens, from a quarter on; the last token is only predicted.
  EXPECT_EQ(row_of(s, "small").n, 2 * (639 - 160));
  int64_t context = 0, digits = 0;
  for (const auto& [name, stratum] : row_of(s, "small").strata) {
    if (name.starts_with("context")) context += stratum.n;
    if (name.ends_with("digits")) digits += stratum.n;
  }
  EXPECT_EQ(context, 2 * (639 - 160));
  EXPECT_EQ(digits, 2 * (639 - 160));
}

TEST(Evaluation, StoppedAndGoneOnIsTheSame) {
  const auto model = TinyEngine::load();
  for (const EvalOptions& options :
       {kld_options({"dense2", "small", "q8_0"}), task_options({"dense2", "small", "q8_0"})}) {
    const TempDir dir;
    ASSERT_TRUE(run(model, options, dir.file("whole")).ok());
    Status s;
    int stops = 0;
    do {
      s = run(model, options, dir.file("parts"), options.is_kld() ? 45 : 500);
      stops += !s.ok();
      ASSERT_TRUE(s.ok() || s.code() == StatusCode::kCancelled) << s.message();
      ASSERT_LT(stops, 200);
      if (!s.ok()) std::ofstream(dir.file("parts/items.jsonl"), std::ios::app) << "{\"id\": \"half";
    } while (!s.ok());
    EXPECT_GT(stops, 0);
    EXPECT_EQ(summary_of(model, options, dir.file("parts")), summary_of(model, options, dir.file("whole")));
  }
}

TEST(Evaluation, ALargerRunAddsToASmallerOne) {
  const auto model = TinyEngine::load();
  EvalOptions options = kld_options({"small"});
  options.n = 1;
  const TempDir dir;
  ASSERT_TRUE(run(model, options, dir.file("grown")).ok());
  options.n = 3;
  options.arms = arms({"small", "int8"}, true);
  const auto grown = Evaluation::prepare(model, options, dir.file("grown"));
  ASSERT_TRUE(grown.ok()) << grown.status().message();
  EXPECT_EQ((*grown)->remaining().done_pairs, 2);  // dense and small on the first slice
  EXPECT_EQ((*grown)->remaining().pairs, 7);
  ASSERT_TRUE((*grown)->run({}).ok());
  EXPECT_EQ((*grown)->left(), 0);
}

TEST(Evaluation, ModeACompressesAfterThePrefill) {
  const auto model = TinyEngine::load();
  for (const bool kld : {true, false}) {
    EvalOptions options = kld ? kld_options({"dense2", "int8", "small"}) : task_options({"dense2", "int8", "small"});
    options.mode = Mode::kA;
    const Summary s = evaluate(model, options);
    EXPECT_EQ(row_of(s, "dense2").kld_max, 0);
    EXPECT_GT(row_of(s, "small").kld_mean, 0);
    EXPECT_EQ(row_of(s, "small").mode, "A");
  }
}

TEST(Evaluation, PeersAreHeldAgainstTheirOwnFloorToo) {
  const auto model = TinyEngine::load();
  const Summary s = evaluate(model, kld_options({"q8_0", "q4_0"}));
  const ArmRow &f16 = row_of(s, "llama_f16"), &q8 = row_of(s, "q8_0"), &q4 = row_of(s, "q4_0");
  EXPECT_EQ(f16.peer_kld_mean, 0.0);
  EXPECT_GT(*q8.peer_kld_mean, 0);
  EXPECT_GT(*q4.peer_kld_mean, *q8.peer_kld_mean);
  EXPECT_NEAR(q8.ratio, 16 / 8.5, 1e-3);
  EXPECT_NEAR(q4.ratio, 16 / 4.5, 1e-3);
  EXPECT_GE(q4.allocated_per_token, q4.bytes_per_token);
}

TEST(Evaluation, AsksEveryQuestionOfAHaystackAfterOneReading) {
  const auto model = TinyEngine::load();
  const EvalOptions options = task_options({"small"});
  const auto plan = make_plan(*model, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->groups.size(), 1u);
  const Group& group = plan->groups[0];
  EXPECT_EQ(group.questions.size(), 12u);
  EXPECT_GT(group.shared.size(), 2000u);
  EXPECT_LE(group.tokens, 3000);
  for (const ItemPrompt& q : group.questions) EXPECT_GE(q.rest.size(), 1u);
  const TempDir dir;
  const auto evaluation = Evaluation::prepare(model, options, dir.file("out"));
  ASSERT_TRUE(evaluation.ok()) << evaluation.status().message();
  EXPECT_EQ((*evaluation)->remaining().pairs, 24);
  EXPECT_LT((*evaluation)->remaining().read_tokens, 2 * 4000);
}

TEST(Evaluation, ChoicesAndCopiesAreScoredByLikelihood) {
  const auto model = TinyEngine::load();
  for (const char* suite : {"docmcq", "echo"}) {
    EvalOptions options = task_options({"dense2", "small"});
    options.suite = suite;
    options.tasks = {suite == std::string("docmcq") ? "after" : "echo"};
    options.lengths = {3900};
    const TempDir dir;
    const Status s = run(model, options, dir.file("out"));
    ASSERT_TRUE(s.ok()) << s.message();
    const auto evaluation = Evaluation::prepare(model, options, dir.file("out"));
    ASSERT_TRUE(evaluation.ok());
    ASSERT_FALSE((*evaluation)->store().records().empty());
    for (const ItemRecord& r : (*evaluation)->store().records()) {
      EXPECT_EQ(r.choice_log_p.size(), suite == std::string("docmcq") ? 4u : 0u);
      EXPECT_GE(r.score, 0);
      EXPECT_LE(r.score, 1);
      if (suite == std::string("docmcq")) {
        const auto best = std::ranges::max_element(r.choice_log_p);
        EXPECT_LT(*best, 0);
      }
      EXPECT_FALSE(r.divergence.kl.empty());
    }
  }
}

TEST(Evaluation, BadInputIsRefusedWithTheNumbers) {
  const auto model = TinyEngine::load();
  const TempDir dir;
  const auto refusal = [&](const EvalOptions& options) {
    return Evaluation::prepare(model, options, dir.file("never")).status();
  };
  const auto expect = [](const Status& s, StatusCode code, const std::string& part) {
    EXPECT_EQ(s.code(), code) << s.message();
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  };
  EvalOptions o = kld_options({});
  o.lengths = {5000};
  expect(refusal(o), StatusCode::kContextOverflow, "5000 tokens; the model's context is 4096");
  o = kld_options({});
  o.n = 0;
  expect(refusal(o), StatusCode::kInvalidArgument, "n is 0");
  o = kld_options({});
  o.documents = {{.name = "short", .text = "Too short."}};
  expect(refusal(o), StatusCode::kResourceExhausted, "a slice of 640");
  o = kld_options({});
  o.suite = "rule";
  expect(refusal(o), StatusCode::kInvalidArgument, "known: kld, ruler, natural, docmcq, echo, longbench");
  o = task_options({});
  o.tasks = {"niah"};
  expect(refusal(o), StatusCode::kInvalidArgument, "no task \"niah\" in suite natural (known: depth_sweep");
  o = kld_options({});
  o.tasks = {"depth_sweep"};
  expect(refusal(o), StatusCode::kInvalidArgument, "kld has no tasks");
  o = kld_options({"small"});
  o.arms[1].profile.model_digest = "another";
  expect(refusal(o), StatusCode::kInvalidArgument,
         "calibrated for model another; this model is " + model->info().digest);
  o = kld_options({"small"});
  o.kernel = "bogus";
  EXPECT_FALSE(refusal(o).ok());
  o = task_options({});
  o.data = dir.file("missing.json");
  expect(refusal(o), StatusCode::kInvalidArgument, "suite natural reads no --data file");
  EXPECT_FALSE(std::filesystem::exists(dir.file("never")));
}

TEST(Evaluation, SlicesAreTheSameForASeedAndDoNotOverlap) {
  const auto model = TinyEngine::load();
  const auto few = *make_slices(*model, {prose()}, 256, 2, 1), many = *make_slices(*model, {prose()}, 256, 5, 1);
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].tokens, many[i].tokens);
    EXPECT_EQ(few[i].id, many[i].id);
    EXPECT_EQ(few[i].tokens.size(), 256u);
  }
  EXPECT_NE((*make_slices(*model, {prose()}, 256, 1, 2))[0].tokens, few[0].tokens);
}

/// The arm that must fail does, on a real model: else the suite could not tell a bad cache from a good one.
TEST(Evaluation, SabotageIsDetected) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  auto model = model::Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EvalOptions options = kld_options({"dense2", "k4v3", "sabotage"});
  options.lengths = {512};
  options.n = 1;
  const Summary s = evaluate(*model, options);
  EXPECT_EQ(row_of(s, "dense2").kld_max, 0);
  EXPECT_GT(row_of(s, "sabotage").kld_mean, 5 * row_of(s, "k4v3").kld_mean);
  EXPECT_GT(row_of(s, "sabotage").kld_mean, 0.05);
  EXPECT_GT(row_of(s, "sabotage").ppl_ratio, 1.03);
  EXPECT_LT(row_of(s, "sabotage").same_top1, row_of(s, "k4v3").same_top1 - 0.05);
}

/// Keys with a bias, coded in three bits: lost without a centre, kept with one in the rotary frame.
TEST(EvaluationLarge, ACentreSavesKeysWithABias) {
  VARVE_MODEL_OR_SKIP(path, "qwen2.5-coder-0.5b");
  auto model = model::Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EvalOptions options = kld_options({"dense2", "k3v3", "tq3"});
  options.lengths = {768};
  options.n = 1;
  const Summary s = evaluate(*model, options);
  EXPECT_EQ(row_of(s, "dense2").kld_max, 0);
  EXPECT_GT(row_of(s, "tq3").kld_mean, 10 * row_of(s, "k3v3").kld_mean);
}

/// Sliding windows, no chat template, libllama beside us.
TEST(EvaluationLarge, ABaseModelWithWindows) {
  VARVE_MODEL_OR_SKIP(path, "gemma3-270m");
  auto model = model::Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const bool kld : {true, false}) {
    const std::vector<std::string> names = {"dense2", "q8_0", "minima"};
    EvalOptions options = kld ? kld_options(names) : task_options(names);
    options.lengths = {1024};
    options.n = 1;
    if (!kld) options.tasks = {"relational"};
    const Summary s = evaluate(*model, options);
    EXPECT_EQ(row_of(s, "dense2").kld_max, 0);
    EXPECT_GT(row_of(s, "q8_0").kld_mean, 0);
    EXPECT_LT(row_of(s, "q8_0").kld_mean, 0.2);
    EXPECT_LT(row_of(s, "minima").kld_mean, 0.2);
  }
}

}  // namespace
}  // namespace varve::eval
