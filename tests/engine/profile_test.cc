#include "varve/profile.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "engine/shipped_profiles.h"
#include "support/temp_dir.h"

namespace varve {
namespace {

constexpr const char* kCustom = R"({
  "name": "custom", "page_tokens": 128, "recent_tokens": 256, "sink_tokens": 4,
  "tiers": {"recent": "int8", "stale1": "k4v3", "centre": "rotary"},
  "layers": [{"layers": "0..1", "stale1": "k6v4", "centre": "post"}, {"layers": "-1", "recent": "fp8"}]
})";

TEST(Profile, EveryNamedProfileIsValidAndSurvivesJson) {
  for (const std::string& name : Profile::names()) {
    const auto p = Profile::named(name);
    ASSERT_TRUE(p.ok()) << p.status().message();
    EXPECT_TRUE(p->validate().ok());
    const auto again = Profile::from_json(p->to_json());
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->to_json(), p->to_json());
    EXPECT_EQ(again->digest(), p->digest());
    EXPECT_EQ(p->is_dense(), name == "dense");
  }
}

TEST(Profile, OverridesApplyByOrdinalFromBothEnds) {
  const auto p = Profile::from_json(kCustom);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->layer_formats(0, 8).stale1, "k6v4");
  EXPECT_EQ(p->layer_formats(1, 8).centre, "post");
  EXPECT_EQ(p->layer_formats(2, 8).stale1, "k4v3");
  EXPECT_EQ(p->layer_formats(2, 8).centre, "rotary");
  EXPECT_EQ(p->layer_formats(7, 8).recent, "fp8");
  EXPECT_EQ(p->layer_formats(6, 8).recent, "int8");
}

TEST(Profile, TheDigestSeesBytesAndNotNames) {
  auto a = Profile::from_json(kCustom), b = Profile::from_json(kCustom);
  ASSERT_TRUE(a.ok() && b.ok());
  b->name = "another";
  b->description = "text";
  EXPECT_EQ(a->digest(), b->digest());
  b->rotation_seed = 2;
  EXPECT_NE(a->digest(), b->digest());
}

TEST(Profile, LoadTakesANameAFormatOrAFile) {
  EXPECT_EQ(Profile::load("minima")->name, "minima");
  EXPECT_EQ(Profile::load("k4v3")->formats.recent, "k4v3");
  EXPECT_TRUE(Profile::load("f16")->is_dense());
  const testing::TempDir dir;
  const std::string path = dir.file("p.json");
  std::ofstream(path) << kCustom;
  EXPECT_EQ(Profile::load(path)->name, "custom");
  EXPECT_EQ(Profile::load("no-such-profile").status().code(), StatusCode::kNotFound);
}

struct Bad {
  const char* name;
  const char* json;
  const char* message;
};
class BadProfile : public ::testing::TestWithParam<Bad> {};

TEST_P(BadProfile, IsRefusedWithTheReason) {
  const auto p = Profile::from_json(GetParam().json);
  ASSERT_FALSE(p.ok());
  EXPECT_NE(p.status().message().find(GetParam().message), std::string::npos) << p.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadProfile,
    ::testing::Values(
        Bad{"NotJson", "{", "not JSON"}, Bad{"NotAnObject", "[1]", "must be a JSON object"},
        Bad{"NoTiers", "{}", "\"tiers\" is missing"},
        Bad{"UnknownKey", R"({"tiers": {"recent": "int8"}, "pages": 3})", "unknown key \"pages\""},
        Bad{"UnknownTier", R"({"tiers": {"recent": "int8", "cold": "k4v3"}})", "unknown key \"cold\""},
        Bad{"ImpossibleWidth", R"({"tiers": {"recent": "k7v3"}})", "k7v3"},
        Bad{"PageSize", R"({"page_tokens": 100, "tiers": {"recent": "int8"}})", "page_tokens is 100"},
        Bad{"PageType", R"({"page_tokens": "256", "tiers": {"recent": "int8"}})", "must be a whole number"},
        Bad{"HugeNumber", R"({"page_tokens": 99999999999, "tiers": {"recent": "int8"}})", "in range"},
        Bad{"NegativeSeed", R"({"rotation_seed": -1, "tiers": {"recent": "int8"}})", "in range"},
        Bad{"Sinks", R"({"sink_tokens": 17, "tiers": {"recent": "int8"}})", "sink_tokens is 17"},
        Bad{"Centre", R"({"tiers": {"recent": "int8", "centre": "mean"}})", "mean"},
        Bad{"Version", R"({"version": 2, "tiers": {"recent": "int8"}})", "version 2"},
        Bad{"LayerRange", R"({"tiers": {"recent": "int8"}, "layers": [{"layers": "a..b"}]})", "a..b"},
        Bad{"EmptyRange", R"({"tiers": {"recent": "int8"}, "layers": [{"layers": "3..1"}]})", "empty range"},
        Bad{"UnusedTier", R"({"tiers": {"recent": "int8"}, "layers": [{"layers": "0", "stale1": "k4v3"}]})",
            "does not use"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Profile, EveryScoringKeyIsCheckedForTypeAndRange) {
  const auto refused = [](const std::string& scoring, const std::string& expected) {
    const auto p = Profile::from_json(
        R"({"tiers": {"recent": "int8", "anchor": "int8", "stale1": "k4v3"}, "scoring": )" + scoring + "}");
    ASSERT_FALSE(p.ok()) << scoring;
    EXPECT_EQ(p.status().code(), StatusCode::kInvalidArgument) << scoring;
    EXPECT_NE(p.status().message().find(expected), std::string::npos) << scoring << ": " << p.status().message();
    EXPECT_EQ(p.status().message().find('\n'), std::string::npos);
  };
  for (const char* key :
       {"on", "anchor_tokens", "rows", "every_steps", "layer_stride", "decay", "score_weight", "age_weight",
        "enter_ratio", "least_score", "leave_score", "dwell_tokens", "restore", "recompute_tokens_per_step"}) {
    const std::string name = key;
    for (const char* wrong : {"null", "[1]", "{}"}) refused("{\"" + name + "\": " + wrong + "}", "\"" + name + "\"");
    if (name != "restore") refused("{\"" + name + "\": \"1\"}", "\"" + name + "\"");
    if (name != "on") refused("{\"" + name + "\": true}", "\"" + name + "\"");
    if (name != "on" && name != "restore") {
      refused("{\"" + name + "\": -1}", "scoring." + name + " is -1");
      if (name != "least_score") refused("{\"" + name + "\": 2000000000}", "scoring." + name + " is 2000000000");
    }
  }
  for (const char* whole : {"anchor_tokens", "rows", "every_steps", "layer_stride", "dwell_tokens"}) {
    refused(std::string("{\"") + whole + "\": 1.5}", "must be a whole number");
    refused(std::string("{\"") + whole + "\": 99999999999}", "in range");
  }
  refused(R"({"restore": "tape"})", "recompute, host, disk, none");
  refused(R"({"least_score": 0.25})", "leave_score 0.5");
  refused(R"({"score_weight": 0, "age_weight": 0})", "both 0");
  refused(R"({"ratio": 1})", "unknown key \"ratio\"");
  refused(R"([])", "must be an object");
}

TEST(Profile, EveryRouterKeyIsCheckedForTypeAndRange) {
  const auto refused = [](const std::string& router, const std::string& expected) {
    const auto p = Profile::from_json(R"({"tiers": {"recent": "int8"}, "router": )" + router + "}");
    ASSERT_FALSE(p.ok()) << router;
    EXPECT_EQ(p.status().code(), StatusCode::kInvalidArgument) << router;
    EXPECT_NE(p.status().message().find(expected), std::string::npos) << router << ": " << p.status().message();
  };
  for (const std::string key : {"pages", "from_tokens", "window_tokens", "reroute_steps", "question_tokens"}) {
    refused("{\"" + key + "\": -1}", "router." + key + " is -1");
    refused("{\"" + key + "\": 2000000000}", "router." + key + " is 2000000000");
    for (const char* wrong : {"null", "\"1\"", "1.5", "true"}) refused("{\"" + key + "\": " + wrong + "}", key);
  }
  refused(R"({"prefill": 1})", "\"prefill\"");
  refused(R"({"window_tokens": 0})", "router.window_tokens is 0");
  refused(R"({"reroute_steps": 0})", "router.reroute_steps is 0");
  refused(R"({"blocks": 3})", "unknown key \"blocks\"");
  refused("[]", "must be an object");
}

TEST(Profile, ARouterIsPartOfTheDigestAndNotDense) {
  Profile p = *Profile::named("dense");
  const std::string digest = p.digest(), json = p.to_json();
  EXPECT_TRUE(p.is_dense());
  EXPECT_EQ(json.find("router"), std::string::npos) << "profiles without one keep their digest";
  p.router = {.pages = 16, .from_tokens = 100, .window_tokens = 64, .reroute_steps = 4, .prefill = true};
  EXPECT_FALSE(p.is_dense());
  EXPECT_NE(p.digest(), digest);
  const auto again = Profile::from_json(p.to_json());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->router, p.router);
  EXPECT_EQ(again->to_json(), p.to_json());
}

constexpr const char* kLowRank = R"({
  "low_rank": {"energy": 0.999, "seed": 7, "bands": {"early": 0.75, "middle": 1.5, "late": 0.5},
               "content": {"digit_boost": 5, "on": false}},
  "tiers": {"recent": "int8", "stale1": "lr32+64", "stale2": "lr8+16/int4/rotated", "centre": "none"},
  "layers": [{"layers": "-1", "stale1": "lr20+64"}]
})";

TEST(Profile, EveryLowRankKeyIsCheckedForTypeAndRange) {
  const auto refused = [](const std::string& low_rank, const std::string& expected) {
    const auto p =
        Profile::from_json(R"({"tiers": {"recent": "int8", "stale1": "lr32+64"}, "low_rank": )" + low_rank + "}");
    ASSERT_FALSE(p.ok()) << low_rank;
    EXPECT_EQ(p.status().code(), StatusCode::kInvalidArgument) << low_rank;
    EXPECT_NE(p.status().message().find(expected), std::string::npos) << low_rank << ": " << p.status().message();
  };
  const struct {
    const char *open, *where, *close;
    std::vector<const char*> keys;
  } objects[] = {{"",
                  "low_rank.",
                  "",
                  {"energy", "least_rank", "seed", "oversample", "power_iterations", "coverage_bonus", "edge_bonus"}},
                 {"{\"bands\": ", "low_rank.bands.", "}", {"early", "middle", "late", "early_boost", "early_share"}},
                 {"{\"content\": ",
                  "low_rank.content.",
                  "}",
                  {"rarity_weight", "least_idf", "digit_boost", "owner_boost", "rare_boost", "rare_count",
                   "run_gap_tokens", "most_run_tokens", "rank_boost", "numeric_share"}}};
  for (const auto& object : objects) {
    for (const std::string key : object.keys) {
      const auto with = [&](const std::string& value) {
        return object.open + ("{\"" + key + "\": ") + value + "}" + object.close;
      };
      for (const char* wrong : {"null", "[1]", "{}", "\"1\"", "true"}) refused(with(wrong), "\"" + key + "\"");
      if (key == "seed") {
        refused(with("-1"), "in range");
        continue;
      }
      refused(with("-1"), object.where + key + " is -1");
      refused(with("2000000000"), object.where + key + " is 2000000000");
    }
    refused(object.open + std::string("{\"x\": 1}") + object.close, "unknown key \"x\"");
    refused(object.open + std::string("[]") + object.close, "must be an object");
  }
  for (const char* whole : {"least_rank", "oversample", "power_iterations"}) {
    refused(std::string("{\"") + whole + "\": 1.5}", "must be a whole number");
  }
  refused(R"({"content": {"on": 1}})", "true or false");
  refused(R"({"content": {"most_run_tokens": 65}})", "must be 0 to 64");
}

TEST(Profile, TheLowRankBlockIsWrittenReadAndDigestedWhereItMatters) {
  const auto p = Profile::from_json(kLowRank);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_TRUE(p->has_low_rank());
  EXPECT_EQ(p->low_rank.energy, 0.999);
  EXPECT_EQ(p->low_rank.seed, 7u);
  EXPECT_EQ(p->low_rank.bands.middle, 1.5);
  EXPECT_EQ(p->low_rank.content.digit_boost, 5);
  EXPECT_FALSE(p->low_rank.content.on);
  const auto again = Profile::from_json(p->to_json());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->low_rank, p->low_rank);
  EXPECT_EQ(again->digest(), p->digest());

  std::set<std::string> digests = {p->digest()};
  const auto changed = [&](const auto& change) {
    Profile other = *p;
    change(other.low_rank);
    EXPECT_TRUE(digests.insert(other.digest()).second);
    EXPECT_EQ(Profile::from_json(other.to_json())->low_rank, other.low_rank);
  };
  changed([](LowRankPages& l) { l.energy = 0.5; });
  changed([](LowRankPages& l) { l.least_rank = 5; });
  changed([](LowRankPages& l) { l.seed = uint64_t{1} << 63; });
  changed([](LowRankPages& l) { l.oversample = 6; });
  changed([](LowRankPages& l) { l.power_iterations = 3; });
  changed([](LowRankPages& l) { l.coverage_bonus = 0; });
  changed([](LowRankPages& l) { l.edge_bonus = 0; });
  changed([](LowRankPages& l) { l.bands.early = 2; });
  changed([](LowRankPages& l) { l.bands.middle = 2; });
  changed([](LowRankPages& l) { l.bands.late = 2; });
  changed([](LowRankPages& l) { l.bands.early_boost = 2; });
  changed([](LowRankPages& l) { l.bands.early_share = 0.25; });
  changed([](LowRankPages& l) { l.content.on = true; });
  changed([](LowRankPages& l) { l.content.rarity_weight = 2; });
  changed([](LowRankPages& l) { l.content.least_idf = 3; });
  changed([](LowRankPages& l) { l.content.digit_boost = 2; });
  changed([](LowRankPages& l) { l.content.owner_boost = 2; });
  changed([](LowRankPages& l) { l.content.rare_boost = 2; });
  changed([](LowRankPages& l) { l.content.rare_count = 3; });
  changed([](LowRankPages& l) { l.content.run_gap_tokens = 2; });
  changed([](LowRankPages& l) { l.content.most_run_tokens = 31; });
  changed([](LowRankPages& l) { l.content.rank_boost = 2; });
  changed([](LowRankPages& l) { l.content.numeric_share = 0.5; });

  // Profiles without low-rank pages keep the digests that they had before there were any.
  EXPECT_EQ(Profile::named("minima")->to_json().find("low_rank"), std::string::npos);
  const auto useless = Profile::from_json(R"({"low_rank": {"seed": 2}, "tiers": {"recent": "int8"}})");
  ASSERT_FALSE(useless.ok());
  EXPECT_NE(useless.status().message().find("no tier has a low-rank format"), std::string::npos);
}

TEST(Profile, RankBandsScaleTheProfilesRanksAndNotTheOverrides) {
  auto p = Profile::from_json(kLowRank);
  ASSERT_TRUE(p.ok()) << p.status().message();
  std::vector<std::string> formats;
  for (int i = 0; i < 9; ++i) formats.push_back(p->layer_formats(i, 9).stale1);
  const std::string early = "lr24+64", middle = "lr48+64", late = "lr16+64";
  EXPECT_EQ(formats, (std::vector<std::string>{early, early, early, middle, middle, middle, late, late, "lr20+64"}));
  EXPECT_EQ(p->layer_formats(0, 9).stale2, "lr6+16/int4/rotated");
  EXPECT_EQ(p->layer_formats(0, 9).recent, "int8");
  EXPECT_EQ(p->layer_formats(0, 9).centre, "none");

  p->low_rank.bands.early_boost = 2;
  EXPECT_EQ(p->layer_formats(0, 9).stale1, "lr64+64") << "the first 15 %: two of nine layers";
  EXPECT_EQ(p->layer_formats(1, 9).stale1, "lr64+64");
  EXPECT_EQ(p->layer_formats(2, 9).stale1, early);

  p->low_rank.bands = {.early = 100, .middle = 0.01, .late = 1, .early_boost = 1, .early_share = 0.15};
  EXPECT_EQ(p->layer_formats(0, 3).stale1, "lr1023+64") << "the most that a format can name";
  EXPECT_EQ(p->layer_formats(1, 3).stale1, "lr1+64") << "and the least";
  EXPECT_EQ(p->layer_formats(0, 1).stale1, "lr20+64") << "a single layer, which is also the last";
}

TEST(Profile, LowRankPresetsAndUniformLowRankFormats) {
  const struct {
    const char *name, *stale1;
    double energy;
  } presets[] = {{"dkv-low", "lr32+64/rotated", 0.999},
                 {"dkv-mid", "lr64+128", 0.9999},
                 {"dkv-high", "lr128+256", 0.99999},
                 {"dkv-ultra", "lr64+256", 0.9999}};
  for (const auto& preset : presets) {
    const auto p = Profile::named(preset.name);
    ASSERT_TRUE(p.ok()) << p.status().message();
    EXPECT_EQ(p->formats.recent, "int8");
    EXPECT_EQ(p->formats.stale1, preset.stale1);
    EXPECT_EQ(p->low_rank.energy, preset.energy);
    EXPECT_EQ(p->page_tokens, 1024);
    EXPECT_TRUE(p->has_low_rank());
  }
  const auto uniform = Profile::load("lr16+8/f16");
  ASSERT_TRUE(uniform.ok()) << uniform.status().message();
  EXPECT_EQ(uniform->formats.recent, "int8") << "recent pages are written tile by tile";
  EXPECT_EQ(uniform->formats.stale1, "lr16+8/f16");
  EXPECT_TRUE(uniform->validate().ok());
  EXPECT_FALSE(Profile::named("minima")->has_low_rank());
  auto by_layer = Profile::from_json(
      R"({"tiers": {"recent": "int8", "stale1": "k4v3", "centre": "none"}, "layers": [{"layers": "0", "stale1": "lr8+8"}]})");
  ASSERT_TRUE(by_layer.ok()) << by_layer.status().message();
  EXPECT_TRUE(by_layer->has_low_rank());
}

TEST(Profile, ACalibrationBindsItToAModelAndIsNoPartOfTheDigest) {
  auto p = Profile::from_json(kCustom);
  ASSERT_TRUE(p.ok());
  const std::string digest = p->digest();
  ASSERT_TRUE(p->set_calibration(R"({"model": {"digest": "abc"}, "layers": [{"layer": 0}, {"layer": 1}]})").ok());
  EXPECT_EQ(p->model_digest, "abc");
  EXPECT_EQ(p->digest(), digest);
  const auto again = Profile::from_json(p->to_json());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->to_json(), p->to_json());
  EXPECT_EQ(again->model_digest, "abc");
  for (const char* bad :
       {"[]", "{}", "no JSON", R"({"model": "abc"})", R"({"model": {"digest": 7}})", R"({"model": {"digest": ""}})"}) {
    EXPECT_EQ(p->set_calibration(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(p->model_digest, "abc") << "a refused record changes nothing";
}

TEST(ShippedProfiles, AreForOneModelEachAndSurviveJson) {
  const auto all = engine::shipped_profiles();
  ASSERT_TRUE(all.ok()) << all.status().message();
  std::set<std::string> models;
  for (const Profile& p : *all) {
    EXPECT_EQ(p.model_digest.size(), 64u);
    EXPECT_TRUE(models.insert(p.model_digest).second) << p.model_digest << " twice";
    EXPECT_FALSE(p.calibration.empty());
    EXPECT_EQ(Profile::from_json(p.to_json())->to_json(), p.to_json());
    EXPECT_EQ(engine::shipped_profile(p.model_digest)->digest(), p.digest());
  }
  EXPECT_EQ(engine::shipped_profile("0123").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace varve
