#include "eval/tasks/loaders.h"

#include <gtest/gtest.h>

#include <fstream>

#include "eval/tasks/score.h"
#include "eval/tasks/support.h"
#include "support/temp_dir.h"

namespace varve::eval {
namespace {

class Loaders : public ::testing::Test {
 protected:
  std::string write(const std::string& content) {
    const std::string path = directory.file("data");
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  void expect_error(const Result<std::vector<Item>>& items, StatusCode code, const std::vector<std::string>& says) {
    ASSERT_FALSE(items.ok());
    EXPECT_EQ(items.status().code(), code) << items.status().message();
    for (const std::string& word : says)
      EXPECT_NE(items.status().message().find(word), std::string::npos) << items.status().message();
  }

  varve::testing::TempDir directory;
  LoadOptions options{testing::count_pieces, 2000, 20};
};

std::string v2_question(const std::string& more = "", const std::string& answer = "\"B\"") {
  return "{\"_id\": \"q1\", \"domain\": \"d\", \"sub_domain\": \"s\", \"difficulty\": \"easy\", \"length\": "
         "\"short\",\n"
         " \"question\": \"Which?\", \"choice_A\": \"a}\", \"choice_B\": \"b\\\"]\", \"choice_C\": \"c\",\n"
         " \"choice_D\": \"d\", \"answer\": " +
         answer + more + "}";
}

TEST_F(Loaders, LongBenchV2) {
  const std::string path = write("[\n" + v2_question(", \"context\": \"Some text.\"") + ",\n" +
                                 v2_question(", \"context\": \"More.\"") + "\n]\n");
  const auto items = load_longbench_v2(path, options);
  ASSERT_TRUE(items.ok()) << items.status().message();
  ASSERT_EQ(items->size(), 2u);
  const Item& item = (*items)[0];
  EXPECT_EQ(item.id, "longbench_v2/2000/q1");
  EXPECT_NE(item.context.find("Some text."), std::string::npos);
  EXPECT_NE(item.question.find("Which?\nChoices:\n(A) a}\n(B) b\"]\n(C) c\n(D) d\n"), std::string::npos);
  EXPECT_EQ(item.dropped_tokens, 0);
  EXPECT_EQ(score(item, "The correct answer is (B)"), 1);
  EXPECT_EQ(score(item, "The correct answer is (A)"), 0);

  options.n = 1;
  options.by_likelihood = true;
  const auto one = load_longbench_v2(path, options);
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].scorer, Scorer::kChoice);
  EXPECT_EQ((*one)[0].answer_tokens, 0);
  EXPECT_EQ((*one)[0].answer_prefix, "The correct answer is (");
}

TEST_F(Loaders, ALongDocumentLosesItsMiddle) {
  const std::string text = testing::made_document("long", 2000).text;
  std::string escaped;
  for (const char c : text) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  const auto items =
      load_longbench_v2(write(std::string("[") + v2_question(", \"context\": \"" + escaped + "\"") + "]"), options);
  ASSERT_TRUE(items.ok()) << items.status().message();
  const Item& item = (*items)[0];
  const int tokens = 20 + testing::count_pieces(item.context) + testing::count_pieces(item.question) + 128;
  EXPECT_LE(tokens, 2000);
  EXPECT_GE(tokens, 1990);
  EXPECT_GT(item.dropped_tokens, 1000);
  EXPECT_NE(item.context.find(text.substr(0, 100)), std::string::npos);
  EXPECT_NE(item.context.find(text.substr(text.size() - 50, 40)), std::string::npos);
  options.length = 150;
  expect_error(load_longbench_v2(directory.file("data"), options), StatusCode::kResourceExhausted, {"data:1", "150"});
}

TEST_F(Loaders, LongBenchV2ErrorsNameFileLineAndField) {
  const std::string good = v2_question(", \"context\": \"x\"");
  expect_error(load_longbench_v2(directory.file("absent"), options), StatusCode::kNotFound, {"absent"});
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"no question"}},
      {"[]", {"no question"}},
      {"{}", {"data:1", "'['"}},
      {"[\n" + good + ",\n" + v2_question() + "]", {"data:5", "'context'", "missing"}},
      {"[\n\n" + v2_question(", \"context\": 3") + "]", {"data:3", "'context'", "string", "number"}},
      {std::string("[") + v2_question(", \"context\": \"x\"", "\"E\"") + "]", {"data:1", "'answer'", "'E'"}},
      {std::string("[") + v2_question(", \"context\": \"x\"", "null") + "]", {"data:1", "'answer'", "null"}},
      {std::string("[") + good + ",\n\n" + good.substr(0, 80), {"data:5", "cut off"}},
      {std::string("[") + good + " " + good + "]", {"','"}},
      {std::string("[") + good + ", 7]", {"number 2"}},
      {"[{\"domain\": tru}]", {"data:1", "malformed"}},
      {std::string("[") + good, {"','"}},
  };
  for (const auto& [content, says] : cases)
    expect_error(load_longbench_v2(write(content), options), StatusCode::kCorrupt, says);
}

TEST_F(Loaders, LongBenchV1) {
  const std::string path = write(
      R"({"input": "Who?", "context": "Ada did.", "answers": ["Ada", "Lady Ada"], "all_classes": null, "dataset": "hotpotqa", "length": 3, "language": "en", "_id": "1"})"
      "\n\n"
      R"({"input": "Question: Where? Type:", "context": "Examples.", "answers": ["City"], "all_classes": ["City", "Person"], "dataset": "trec"})"
      "\n"
      R"({"input": "", "context": "A report.", "answers": ["It reports."], "all_classes": null, "dataset": "gov_report"})"
      "\n");
  const auto items = load_longbench_v1(path, options);
  ASSERT_TRUE(items.ok()) << items.status().message();
  ASSERT_EQ(items->size(), 3u);
  EXPECT_EQ((*items)[0].scorer, Scorer::kF1);
  EXPECT_EQ((*items)[0].id, "longbench/hotpotqa/2000/1");
  EXPECT_EQ(score((*items)[0], " The Ada."), 1);
  EXPECT_EQ((*items)[1].id, "longbench/trec/2000/3");
  EXPECT_EQ(score((*items)[1], "City\nPerson"), 1);
  EXPECT_EQ((*items)[2].scorer, Scorer::kRougeL);
  EXPECT_EQ((*items)[2].answer_tokens, 512);
  EXPECT_EQ(score((*items)[2], "It reports."), 1);
}

TEST_F(Loaders, LongBenchV1ErrorsNameFileLineAndField) {
  const std::string good = R"({"input": "a", "context": "b", "answers": ["c"], "dataset": "qasper"})";
  const auto load = [&](const std::string& line) {
    return load_longbench_v1(write(good + "\n" + line + "\n"), options);
  };
  const StatusCode corrupt = StatusCode::kCorrupt;
  expect_error(load("{\"input\""), corrupt, {"data:2", "malformed"});
  expect_error(load("[1]"), corrupt, {"data:2", "object"});
  expect_error(load(R"({"input": "a", "context": "b", "answers": ["c"]})"), corrupt,
               {"data:2", "'dataset'", "missing"});
  expect_error(load(R"({"input": "a", "context": "b", "answers": ["c"], "dataset": "lcc"})"), StatusCode::kUnsupported,
               {"data:2", "'lcc'", "narrativeqa"});
  expect_error(load(R"({"input": "a", "context": "b", "answers": [], "dataset": "qasper"})"), corrupt,
               {"data:2", "'answers'", "0 of at least 1"});
  expect_error(load(R"({"input": "a", "context": "b", "answers": [["c"]], "dataset": "qasper"})"), corrupt,
               {"data:2", "'answers'", "array"});
  expect_error(load(R"({"input": "a", "context": "b", "answers": ["c"], "all_classes": null, "dataset": "trec"})"),
               corrupt, {"data:2", "'all_classes'", "null"});
  expect_error(
      load(R"({"input": "a", "context": "b", "answers": ["x"], "all_classes": ["c", "d"], "dataset": "trec"})"),
      corrupt, {"data:2", "'answers'", "'x'"});
  options.n = 1;
  EXPECT_TRUE(load("{\"input\"").ok());  // what is behind the questions that were asked for is not read
  options.n = -1;
  expect_error(load(good), StatusCode::kInvalidArgument, {"-1"});
}

TEST_F(Loaders, Ruler) {
  const std::string path = write(
      "{\"index\": 0, \"input\": \"Answer the question. Question: Who? Answer:\", \"outputs\": [\"Ada\", \"Lady\"], "
      "\"length\": 40}\n"
      "{\"input\": \"More\", \"outputs\": [\"x\"], \"answer_prefix\": \"Answer:\"}\n");
  const auto items = load_ruler(path, "qa_2", options);
  ASSERT_TRUE(items.ok()) << items.status().message();
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0].id, "ruler/qa_2/2000/1");
  EXPECT_EQ(score((*items)[0], "it was ada"), 1);
  EXPECT_EQ((*items)[1].answer_prefix, "Answer:");
  EXPECT_EQ(score((*load_ruler(path, "niah_multivalue", options))[0], "it was ada"), 0.5);
  options.length = 40;
  expect_error(load_ruler(path, "qa_2", options), StatusCode::kResourceExhausted, {"data:1", "40"});
  options.length = 2000;
  expect_error(load_ruler(write("{\"input\": \"x\"}"), "qa_2", options), StatusCode::kCorrupt,
               {"data:1", "'outputs'", "missing"});
  expect_error(load_ruler(write("{\"input\": \"x\", \"outputs\": 3}"), "qa_2", options), StatusCode::kCorrupt,
               {"data:1", "'outputs'", "number"});
  expect_error(load_ruler(write(" \n\n"), "qa_2", options), StatusCode::kCorrupt, {"no question"});
}

}  // namespace
}  // namespace varve::eval
