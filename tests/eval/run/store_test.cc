// The directory of an evaluation: what is kept, what is dropped, what is refused.

#include "eval/run/store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temp_dir.h"

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;

const Json kIdentity = {{"varve_eval", 1}, {"suite", "kld"}, {"seed", 1}};

ItemRecord record(const std::string& id, const std::string& arm) {
  ItemRecord r;
  r.id = id;
  r.task = "kld";
  r.group = id;
  r.arm = arm;
  r.mode = "B";
  r.length = 128;
  r.profile_digest = "llama.cpp q8_0";
  r.prompt_sha256 = "abc";
  r.model_digest = "m";
  r.score = 0.1234567;
  r.answer = "caf\xc3\xa9 \xc3";  // ends inside a character
  r.references = {"x"};
  r.depths = {0.5};
  r.choice_log_p = {-1.5, -2};
  r.divergence.add({.kl = 1.0 / 3, .max_delta = 0, .same_top = true, .nll_p = 2, .nll_q = 3});
  r.peer_divergence.add({.kl = 0.5});
  r.strata["digits"] = {.n = 1, .kl_sum = 1.0 / 3, .same_top = 1};
  r.context_tokens = 127;
  r.bytes.kv.dense_bytes = 1000;
  r.bytes.kv.physical_bytes = 300;
  r.bytes.kv.tiers.push_back({.tier = "recent", .format = "int8", .pages = 1, .tokens = 127, .bytes = 300});
  r.fallbacks["pressure"] = 2;
  r.seconds = 1.5;
  return r;
}

ArmSpec peer_arm() {
  ArmSpec arm;
  arm.name = "q8_0";
  arm.kind = ArmKind::kPeer;
  arm.kv_type = "q8_0";
  return arm;
}

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(EvalStore, ARecordSurvivesItsLine) {
  const Json line = record_json(record("a", "q8_0"));
  const auto back = parse_record(Json::parse(line.dump()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(record_json(*back).dump(), line.dump());
  EXPECT_EQ(back->divergence.kl, std::vector<double>{0.333333});
  EXPECT_EQ(back->fallbacks.at("pressure"), 2u);
  EXPECT_EQ(back->bytes.kv.tiers.at(0).format, "int8");
  EXPECT_NE(back->answer.find("caf\xc3\xa9"), std::string::npos);
  EXPECT_EQ(parse_record(Json{{"id", "a"}}).status().code(), StatusCode::kCorrupt);
  Json wrong = line;
  wrong["score"] = "high";
  EXPECT_EQ(parse_record(wrong).status().code(), StatusCode::kCorrupt);
}

TEST(EvalStore, GoesOnWhereItWas) {
  const testing::TempDir dir;
  const std::string path = dir.file("out");
  {
    auto store = Store::open(path, kIdentity);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_TRUE(store->add(record("a", "q8_0")).ok());
    ASSERT_TRUE(store->add(record("b", "q8_0")).ok());
  }
  std::ofstream(path + "/items.jsonl", std::ios::app) << R"({"id": "c", "task": "k)";
  auto store = Store::open(path, kIdentity);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_EQ(store->records().size(), 2u);
  EXPECT_TRUE(*store->has("b", peer_arm(), "abc"));
  EXPECT_FALSE(*store->has("c", peer_arm(), "abc"));
  ASSERT_TRUE(store->add(record("c", "q8_0")).ok());
  const std::string lines = read(path + "/items.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) EXPECT_FALSE(Json::parse(line, nullptr, false).is_discarded());
}

TEST(EvalStore, RefusesWhatIsNotItsOwn) {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir.file("foreign"));
  std::ofstream(dir.file("foreign/notes.txt")) << "mine";
  const auto foreign = Store::open(dir.file("foreign"), kIdentity);
  EXPECT_EQ(foreign.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(foreign.status().message().find("notes.txt"), std::string::npos);

  const std::string path = dir.file("out");
  { ASSERT_TRUE(Store::open(path, kIdentity).ok()); }
  Json other = kIdentity;
  other["seed"] = 2;
  const auto refused = Store::open(path, other);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("seed 1; this command has 2"), std::string::npos)
      << refused.status().message();

  std::ofstream(path + "/items.jsonl") << "not json\n";
  const auto damaged = Store::open(path, kIdentity);
  EXPECT_EQ(damaged.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(damaged.status().message().find("line 1"), std::string::npos) << damaged.status().message();

  std::ofstream(path + "/eval.json") << "{";
  EXPECT_EQ(Store::open(path, kIdentity).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(Store::open("/dev/null/out", kIdentity).status().code(), StatusCode::kIoError);
}

TEST(EvalStore, OneWriterAtATime) {
  const testing::TempDir dir;
  const auto first = Store::open(dir.file("out"), kIdentity);
  ASSERT_TRUE(first.ok());
  const auto second = Store::open(dir.file("out"), kIdentity);
  EXPECT_EQ(second.status().code(), StatusCode::kIoError);
  EXPECT_NE(second.status().message().find("another evaluation"), std::string::npos);
}

TEST(EvalStore, ADoneItemMustBeTheSameItem) {
  const testing::TempDir dir;
  auto store = Store::open(dir.file("out"), kIdentity);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->add(record("a", "q8_0")).ok());
  EXPECT_NE(store->has("a", peer_arm(), "other").status().message().find("another prompt"), std::string::npos);
  ArmSpec changed = peer_arm();
  changed.kv_type = "q4_0";
  EXPECT_NE(store->has("a", changed, "abc").status().message().find("llama.cpp q4_0"), std::string::npos);
}

}  // namespace
}  // namespace varve::eval
