// Arms by name, and what is refused.

#include "eval/run/arms.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_dir.h"

namespace varve::eval {
namespace {

Result<std::vector<ArmSpec>> parse(const std::vector<std::string>& names, bool peer_reference = false) {
  return parse_arms(
      names, [](const std::string& name) { return Profile::load(name); }, peer_reference);
}

std::string names(const std::vector<ArmSpec>& arms) {
  std::string out;
  for (const ArmSpec& a : arms) out += (out.empty() ? "" : " ") + a.name;
  return out;
}

TEST(EvalArms, TheReferenceIsFirstAndOnce) {
  EXPECT_EQ(names(*parse({"minima", "dense", "k4v3"})), "dense minima k4v3");
  EXPECT_EQ(names(*parse({})), "dense");
}

TEST(EvalArms, PeersBringTheirOwnReferenceWhereItIsAskedFor) {
  EXPECT_EQ(names(*parse({"q4_0", "minima"}, true)), "dense q4_0 minima llama_f16");
  EXPECT_EQ(names(*parse({"llama_f16", "q4_0"}, true)), "dense llama_f16 q4_0");
  EXPECT_EQ(names(*parse({"q4_0"}, false)), "dense q4_0");
  EXPECT_EQ(names(*parse({"minima"}, true)), "dense minima");
  EXPECT_EQ(parse({"q8_0"})->at(1).kind, ArmKind::kPeer);
  EXPECT_EQ(parse({"q8_0"})->at(1).kv_type, "q8_0");
}

TEST(EvalArms, SpecialArmsAreWhatTheySay) {
  const auto arms = *parse({"dense2", "floor", "tq3", "sabotage"});
  EXPECT_TRUE(arms[0].profile.is_dense());
  EXPECT_TRUE(arms[1].profile.is_dense());
  EXPECT_TRUE(arms[1].is_control());
  EXPECT_GT(arms[2].chunk_tokens, 0);
  for (const size_t i : {size_t{3}, size_t{4}}) {
    EXPECT_TRUE(arms[i].profile.validate().ok()) << arms[i].profile.validate().message();
    EXPECT_EQ(arms[i].profile.formats.centre, "none");
    EXPECT_EQ(arms[i].profile.sink_tokens, 0);
  }
  EXPECT_EQ(arms[3].profile.formats.recent, "k3v3");
  EXPECT_EQ(arms[4].profile.formats.recent, "k2v8");
}

TEST(EvalArms, ARotationSeedMakesAnotherArm) {
  const auto arms = *parse({"minima", "minima@2"});
  EXPECT_EQ(arms[2].name, "minima@2");
  EXPECT_EQ(arms[2].profile.rotation_seed, 2u);
  EXPECT_NE(arms[1].digest(), arms[2].digest());
}

TEST(EvalArms, AFileIsNamedByTheProfileInIt) {
  const testing::TempDir dir;
  const std::string path = dir.file("mine.json");
  std::ofstream(path) << R"({"name": "mine", "tiers": {"recent": "int8", "centre": "none"}})";
  EXPECT_EQ(names(*parse({path, path + "@7"})), "dense mine mine@7");
}

TEST(EvalArms, BadNamesAreRefused) {
  const auto unknown = parse({"q5_0"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("sabotage"), std::string::npos) << unknown.status().message();
  EXPECT_NE(unknown.status().message().find("minima"), std::string::npos) << unknown.status().message();
  EXPECT_NE(parse({"minima", "minima"}).status().message().find("two arms are named minima"), std::string::npos);
  EXPECT_NE(parse({"dense", "dense"}).status().message().find("two arms are named dense"), std::string::npos);
  EXPECT_NE(parse({"minima@x"}).status().message().find("rotation seed"), std::string::npos);
}

}  // namespace
}  // namespace varve::eval
