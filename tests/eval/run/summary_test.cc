// Figures of a report against values computed by hand.

#include "eval/report/summary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/report/html.h"
#include "eval/report/table.h"
#include "eval/stats/paired.h"

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;

Json identity(const std::string& suite) {
  return {{"suite", suite}, {"mode", "B"}, {"model", "tiny <model>"}, {"model_digest", "d"}, {"seed", 1}};
}

ItemRecord answer(const std::string& arm, int item, double score, double depth = 0.5) {
  ItemRecord r;
  r.id = "needle/" + std::to_string(item);
  r.task = "needle";
  r.group = r.id;
  r.arm = arm;
  r.mode = "B";
  r.length = 4096;
  r.profile_digest = arm;
  r.score = score;
  r.depths = {depth};
  r.context_tokens = 100;
  r.bytes.kv.dense_bytes = 1000;
  r.bytes.kv.physical_bytes = arm == "dense" ? 1000 : 250;
  return r;
}

TEST(EvalSummary, CountsFlipsAndInterval) {
  std::vector<ItemRecord> records;
  const double dense[] = {1, 1, 1, 1, 1, 1, 1, 0, 0, 1};
  const double arm[] = {1, 1, 1, 1, 0, 0, 0, 1, 0, 1};
  for (int i = 0; i < 10; ++i) {
    records.push_back(answer("dense", i, dense[i]));
    records.push_back(answer("minima", i, arm[i]));
  }
  records.push_back(answer("dense", 10, 1));  // not answered by the arm: no pair
  const Summary s = summarize_records(identity("ruler"), records);
  ASSERT_EQ(s.tasks.size(), 1u);
  const TaskRow& row = s.tasks[0];
  EXPECT_EQ(row.n, 10);
  EXPECT_NEAR(row.dense_score, 0.8, 1e-12);
  EXPECT_NEAR(row.score, 0.6, 1e-12);
  EXPECT_NEAR(row.delta, -0.2, 1e-12);
  EXPECT_EQ(row.wins, 1);
  EXPECT_EQ(row.losses, 3);
  EXPECT_NEAR(row.p, 0.625, 1e-12);  // 2 * (1 + 4) / 2^4
  EXPECT_TRUE(row.discriminative);
  EXPECT_EQ(row.method, "newcombe");
  const Interval expected = newcombe_paired({.both_right = 5, .wins = 1, .losses = 3, .both_wrong = 1});
  EXPECT_EQ(row.interval.lo, expected.lo);
  EXPECT_EQ(row.interval.hi, expected.hi);
  ASSERT_EQ(s.arms.size(), 2u);
  EXPECT_EQ(s.arms[1].bytes_per_token, 2.5);
  EXPECT_EQ(s.arms[1].ratio, 4);
}

TEST(EvalSummary, FlagsWhatCannotRank) {
  std::vector<ItemRecord> records;
  for (int i = 0; i < 5; ++i) {
    records.push_back(answer("dense", i, i < 2));
    records.push_back(answer("minima", i, 0));
  }
  const Summary s = summarize_records(identity("ruler"), records);
  EXPECT_FALSE(s.tasks.at(0).discriminative);
  EXPECT_NE(summary_table(s).find("non-discriminative"), std::string::npos);
}

TEST(EvalSummary, QuestionsOfOneHaystackAreOneCluster) {
  std::vector<ItemRecord> records;
  for (int i = 0; i < 8; ++i) {
    for (const char* arm : {"dense", "minima"}) {
      ItemRecord r = answer(arm, i, arm == std::string("dense") || i >= 4);
      r.group = i < 4 ? "one" : "two";
      records.push_back(r);
    }
  }
  const TaskRow row = summarize_records(identity("natural"), records).tasks.at(0);
  EXPECT_EQ(row.groups, 2);
  EXPECT_EQ(row.method, "cluster bootstrap");
  EXPECT_EQ(row.interval.lo, -1);  // the first haystack drawn twice
  EXPECT_EQ(row.interval.hi, 0);
}

TEST(EvalSummary, FlipsThatCancelLeaveAnInterval) {
  std::vector<ItemRecord> records;
  for (int i = 0; i < 8; ++i) {  // in both haystacks one win and one loss
    for (const char* arm : {"dense", "minima"}) {
      const bool flipped = arm == std::string("minima") && i % 4 < 2;
      ItemRecord r = answer(arm, i, (i % 4 != 1) != flipped);
      r.group = i < 4 ? "one" : "two";
      records.push_back(r);
    }
  }
  const TaskRow row = summarize_records(identity("natural"), records).tasks.at(0);
  EXPECT_EQ(row.wins, 2);
  EXPECT_EQ(row.losses, 2);
  EXPECT_LT(row.interval.lo, -0.1);
  EXPECT_GT(row.interval.hi, 0.1);
}

TEST(EvalSummary, PoolsDivergenceOverSlices) {
  std::vector<ItemRecord> records;
  for (int slice = 0; slice < 2; ++slice) {
    ItemRecord r = answer("int8", slice, 0);
    r.task = "kld";
    for (int i = 0; i < 50; ++i) {
      r.divergence.add({.kl = slice * 50 + i + 1.0, .same_top = i % 2 == 0, .nll_p = 1, .nll_q = 1.5});
    }
    r.strata["digits"] = {.n = 2, .kl_sum = 3, .same_top = 1};
    records.push_back(r);
  }
  const ArmRow row = summarize_records(identity("kld"), records).arms.at(0);
  EXPECT_EQ(row.n, 100);
  EXPECT_NEAR(row.kld_mean, 50.5, 1e-9);
  EXPECT_EQ(row.kld_median, 50);
  EXPECT_EQ(row.kld_p99, 99);
  EXPECT_EQ(row.kld_p999, 100);
  EXPECT_EQ(row.kld_max, 100);
  EXPECT_NEAR(row.same_top1, 0.5, 1e-12);
  EXPECT_NEAR(row.ppl_ratio, std::exp(0.5), 1e-12);
  EXPECT_EQ(row.strata.at("digits").n, 4);
  ASSERT_TRUE(row.kld_interval);
  EXPECT_EQ(row.kld_interval->lo, 25.5);
  EXPECT_EQ(row.kld_interval->hi, 75.5);
}

TEST(EvalSummary, TheOrderOfTheLinesOfAnArmDoesNotMatter) {
  std::vector<ItemRecord> records;
  for (int i = 0; i < 6; ++i) {
    for (const char* arm : {"dense", "minima"}) records.push_back(answer(arm, i, (i * 7 % 3) / 2.0));
  }
  const std::string first = summary_json(summarize_records(identity("ruler"), records), identity("ruler"), "c").dump();
  std::rotate(records.begin() + 2, records.begin() + 6, records.end());
  EXPECT_EQ(summary_json(summarize_records(identity("ruler"), records), identity("ruler"), "c").dump(), first);
}

TEST(EvalSummary, TheDocumentHasItsKeys) {
  const std::vector<ItemRecord> records = {answer("dense", 0, 1), answer("minima", 0, 1)};
  const Json json = summary_json(summarize_records(identity("ruler"), records), identity("ruler"), "varve eval");
  for (const char* key :
       {"model", "suite", "mode", "seed", "arms", "tasks", "model_digest", "command", "build", "machine"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"arm", "length", "n", "kld_mean", "kld_p99", "same_top1", "ppl_ratio", "bytes_per_token",
                          "ratio", "profile_digest"}) {
    EXPECT_TRUE(json["arms"][1].contains(key)) << key;
  }
  for (const char* key :
       {"task", "length", "arm", "n", "score", "delta", "lo", "hi", "wins", "losses", "discriminative"}) {
    EXPECT_TRUE(json["tasks"][0].contains(key)) << key;
  }
}

TEST(EvalReport, ThePageEscapesAndDrawsEveryArm) {
  std::vector<ItemRecord> records;
  for (int i = 0; i < 4; ++i) {
    for (const char* arm : {"dense", "minima", "q4_0"}) {
      ItemRecord r = answer(arm, i, 1, i / 4.0);
      if (arm != std::string("dense")) r.divergence.add({.kl = 0.01 * (i + 1)});
      records.push_back(r);
    }
  }
  LayerSensitivity layers{.profile = "auto", .layers = {"0", "1"}, .codecs = {"k4"}, .kl = {{0.1, std::nullopt}}};
  const std::string page =
      html_report(summarize_records(identity("ruler"), records), records, {layers}, "varve eval -m \"<x>\"");
  EXPECT_EQ(page.find("<model>"), std::string::npos);
  EXPECT_NE(page.find("tiny &lt;model&gt;"), std::string::npos);
  EXPECT_NE(page.find("&quot;&lt;x&gt;&quot;"), std::string::npos);
  EXPECT_NE(page.find("q4_0: 2.5, 0.025"), std::string::npos);  // bytes and divergence of a point
  EXPECT_NE(page.find("from the profile auto"), std::string::npos);
  EXPECT_EQ(page.find("http://www.w3.org/2000/svg") == std::string::npos, false);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(EvalReport, DepthsAreTenths) {
  const std::vector<ItemRecord> records = {answer("dense", 0, 1, 0.0), answer("dense", 1, 0, 0.05),
                                           answer("dense", 2, 1, 1.0)};
  const HeatMap map = depth_map(records, 4096);
  ASSERT_EQ(map.rows, std::vector<std::string>{"dense"});
  EXPECT_EQ(map.cells[0][0], 0.5);
  EXPECT_EQ(map.cells[0][9], 1.0);
  EXPECT_FALSE(map.cells[0][5].has_value());
}

TEST(EvalReport, ReadsACalibratedProfile) {
  Profile p = *Profile::named("minima");
  EXPECT_FALSE(layer_sensitivity(p).has_value());
  ASSERT_TRUE(p.set_calibration(R"({"model": {"digest": "d"}, "layers": [
    {"layer": 0, "k": {"4": {"kl": 0.5}}, "v": {"3": {"kl": 0.25}}}, {"layer": 2, "k": {"4": {"kl": 1.5}}}]})")
                  .ok());
  const auto s = layer_sensitivity(p);
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->layers, (std::vector<std::string>{"0", "2"}));
  EXPECT_EQ(s->codecs, (std::vector<std::string>{"k4", "v3"}));
  EXPECT_EQ(s->kl[0][1], 1.5);
  EXPECT_EQ(s->kl[1][0], 0.25);
  EXPECT_FALSE(s->kl[1][1].has_value());
}

}  // namespace
}  // namespace varve::eval
