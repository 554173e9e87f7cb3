// The score policy as a table: who ranks where, what fits the budget, what hysteresis holds back.

#include "cache/lifecycle/score_policy.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace varve::cache {
namespace {

constexpr int kPage = 4;

ScorePolicy::Options options() {
  ScorePolicy::Options o;
  o.recent_tokens = 8;
  o.anchor_tokens = 2 * kPage;
  o.weight_age = 0;
  o.weight_shared = 0;
  return o;
}

/// Pages by position; the last one is 0 tokens old. Tiers by letter: R, A, S(tale1), 2.
std::vector<PageFeatures> pages(const std::string& tiers, std::vector<float> scores = {}) {
  std::vector<PageFeatures> out;
  for (size_t i = 0; i < tiers.size(); ++i) {
    PageFeatures f;
    f.start = static_cast<int>(i) * kPage;
    f.tokens = kPage;
    f.age_tokens = static_cast<int>(tiers.size() - 1 - i) * kPage;
    f.tier = tiers[i] == 'R'   ? Tier::kRecent
             : tiers[i] == 'A' ? Tier::kAnchor
             : tiers[i] == 'S' ? Tier::kStale1
                               : Tier::kStale2;
    f.sealed = true;
    f.tier_bytes = {512, 512, 128, 64};
    f.score = i < scores.size() ? scores[i] : 0;
    out.push_back(f);
  }
  return out;
}

std::vector<Wish> decide(const ScorePolicy::Options& o, const std::vector<PageFeatures>& p) {
  EXPECT_TRUE(ScorePolicy::validate(o).ok()) << ScorePolicy::validate(o).message();
  std::vector<Wish> wishes(p.size(), Wish{Tier::kCount, ""});
  ScorePolicy(o).decide(p, wishes);
  return wishes;
}

std::string letters(const std::vector<Wish>& wishes) {
  std::string text;
  for (const Wish& w : wishes) text += "RAS2?"[static_cast<size_t>(w.tier)];
  return text;
}
std::string whys(const std::vector<Wish>& wishes) {
  std::string text;
  for (const Wish& w : wishes) text += std::string(w.why) + " ";
  return text;
}
std::string run(const ScorePolicy::Options& o, const std::vector<PageFeatures>& p) { return letters(decide(o, p)); }

TEST(ScorePolicy, WithoutScoresItIsAge) {
  const auto wishes = decide(options(), pages("RRRRRR"));
  EXPECT_EQ(letters(wishes), "SSSSRR");
  EXPECT_EQ(whys(wishes), "age age age age keep keep ");
}

TEST(ScorePolicy, TheBestOldPagesFillTheBudget) {
  // Uniform is 1/6; the pages at 0, 4 and 12 are above it, two have a place.
  const auto wishes = decide(options(), pages("RRRRRR", {.2f, .25f, .05f, .3f, .1f, .1f}));
  EXPECT_EQ(letters(wishes), "SASARR");
  EXPECT_EQ(whys(wishes), "age score age score keep keep ");
}

TEST(ScorePolicy, YoungPagesDoNotCompete) {
  EXPECT_EQ(run(options(), pages("RRRRRR", {.0f, .0f, .0f, .0f, .5f, .5f})), "SSSSRR");
  EXPECT_EQ(run(options(), pages("SSSSAR", {.0f, .0f, .0f, .0f, .0f, .5f})), "SSSSAR");
}

TEST(ScorePolicy, AYoungStalePageCompetesButNeverBecomesRecent) {
  // After a prefix hit pages can be stale and young.
  EXPECT_EQ(run(options(), pages("SSSSSS", {.0f, .0f, .0f, .0f, .0f, .9f})), "SSSSSA");
  EXPECT_EQ(run(options(), pages("SSSSSS")), "SSSSSS");
}

TEST(ScorePolicy, MarkedPagesAreAnchorsBesideTheBudget) {
  auto p = pages("RSSASR", {.0f, .3f, .3f, .3f, .0f, .1f});
  p[0].marked = p[5].marked = p[4].marked = true;
  const auto wishes = decide(options(), p);
  EXPECT_EQ(letters(wishes), "AASAAA");
  EXPECT_EQ(whys(wishes), "marked score keep keep marked marked ");
  p[0].dwelling = true;
  EXPECT_EQ(run(options(), p)[0], 'A') << "a mark does not wait";
  p[0].sealed = false;
  EXPECT_EQ(run(options(), p)[0], 'R') << "an open page cannot move";
}

TEST(ScorePolicy, AnAnchorFadesBelowItsShareOnlyOnceSomethingIsObserved) {
  EXPECT_EQ(run(options(), pages("AASSRR")), "AASSRR");
  // Uniform 1/6, leave_score 0.5: .083 is the line.
  const auto wishes = decide(options(), pages("AASSRR", {.08f, .09f, .0f, .0f, .4f, .4f}));
  EXPECT_EQ(letters(wishes), "SASSRR");
  EXPECT_STREQ(wishes[0].why, "faded");
}

TEST(ScorePolicy, EnteringAFullBudgetTakesARatio) {
  // The weakest anchor has .2; enter_ratio 1.5 asks for more than .3.
  EXPECT_EQ(run(options(), pages("AASSRR", {.25f, .2f, .29f, .0f, .1f, .1f})), "AASSRR");
  const auto wishes = decide(options(), pages("AASSRR", {.25f, .2f, .31f, .0f, .1f, .1f}));
  EXPECT_EQ(letters(wishes), "ASASRR");
  EXPECT_STREQ(wishes[1].why, "faded");
  EXPECT_STREQ(wishes[2].why, "score");
}

TEST(ScorePolicy, AFreePlaceAsksForTheLeastScore) {
  EXPECT_EQ(run(options(), pages("SSSSRR", {.16f, .17f, .0f, .0f, .3f, .3f})), "SASSRR");
}

TEST(ScorePolicy, TooManyAnchorsLoseTheWeakest) {
  const auto wishes = decide(options(), pages("AAAARR", {.2f, .3f, .1f, .25f, .1f, .1f}));
  EXPECT_EQ(letters(wishes), "SASARR");
  ScorePolicy::Options none = options();
  none.anchor_tokens = kPage - 1;  // rounds down to no page
  EXPECT_EQ(run(none, pages("ASSSRR", {.9f, .9f, .0f, .0f, .0f, .0f})), "SSSSRR");
}

TEST(ScorePolicy, DwellingPagesNeitherEnterNorLeave) {
  auto p = pages("AASSRR", {.01f, .2f, .5f, .0f, .1f, .1f});
  p[0].dwelling = true;  // would fade
  p[1].dwelling = true;  // would be beaten
  EXPECT_EQ(run(options(), p), "AASSRR");
  p[1].dwelling = false;
  EXPECT_EQ(run(options(), p), "ASASRR") << "the weakest that may leave leaves";
  p[2].dwelling = true;
  EXPECT_EQ(run(options(), p), "AASSRR");
}

TEST(ScorePolicy, AgeAndSharingWeighInAsStated) {
  ScorePolicy::Options o = options();
  o.weight_score = 2;
  o.weight_age = 1;
  o.weight_shared = 1;
  auto p = pages("SSSSRR", {.1f, .2f, .05f, .4f, .1f, .15f});
  p[2].shared = true;
  const auto wishes = decide(o, p);
  // Competing: ages 20, 16, 12, 8; best score .4.
  EXPECT_NEAR(wishes[0].value, (2 * .25 + 0 + 0) / 4, 1e-6);
  EXPECT_NEAR(wishes[1].value, (2 * .5 + 1 - 16. / 20 + 0) / 4, 1e-6);
  EXPECT_NEAR(wishes[2].value, (2 * .125 + 1 - 12. / 20 + 1) / 4, 1e-6);
  EXPECT_NEAR(wishes[3].value, (2 * 1 + 1 - 8. / 20 + 0) / 4, 1e-6);
}

TEST(ScorePolicy, WithoutAnAnchorTierItIsAge) {
  auto p = pages("RRRRRR", {.5f, .4f, .0f, .0f, .0f, .1f});
  for (PageFeatures& f : p) f.tier_bytes[1] = 0, f.marked = true;
  EXPECT_EQ(run(options(), p), "SSSSRR");
}

TEST(ScorePolicy, WithoutAStaleTierOnlyMarkedPagesMove) {
  auto p = pages("RRRRRR", {.5f, .4f, .0f, .0f, .0f, .1f});
  for (PageFeatures& f : p) f.tier_bytes[2] = f.tier_bytes[3] = 0;
  p[2].marked = true;
  EXPECT_EQ(run(options(), p), "RRARRR");
}

TEST(ScorePolicy, RelievingLetsEverythingGoAndSaysInWhichOrder) {
  auto p = pages("AAASRR", {.2f, .3f, .1f, .0f, .2f, .2f});
  p[2].marked = true;
  for (PageFeatures& f : p) f.relieving = true;
  p[5].sealed = false;
  const auto wishes = decide(options(), p);
  EXPECT_EQ(letters(wishes), "SSSSSR");
  EXPECT_EQ(whys(wishes), "pressure pressure pressure keep pressure keep ");
  EXPECT_LT(wishes[0].value, wishes[1].value);
  EXPECT_EQ(wishes[2].value, 1);
}

/// Two pages compete for one place; which is better alternates, `ratio` to 1. Returns the moves of 40 rounds.
int moves(double ratio, int dwell_rounds) {
  ScorePolicy::Options o = options();
  o.anchor_tokens = kPage;
  std::string tiers = "SSRR";
  std::vector<int> moved(4, -1000);
  int count = 0;
  for (int round = 0; round < 40; ++round) {
    const float strong = static_cast<float>(.7 * ratio / (1 + ratio)), weak = .7f - strong;
    auto p = pages(tiers, {round % 2 ? strong : weak, round % 2 ? weak : strong, .15f, .15f});
    for (size_t i = 0; i < 4; ++i) p[i].dwelling = round - moved[i] < dwell_rounds;
    const std::string next = run(o, p);
    for (size_t i = 0; i < 4; ++i) {
      if (next[i] == tiers[i]) continue;
      ++count;
      moved[i] = round;
    }
    tiers = next;
  }
  return count;
}

TEST(ScorePolicy, AlternatingFavouritesDoNotFlap) {
  EXPECT_EQ(moves(1.4, 0), 1) << "below enter_ratio the first one stays";
  EXPECT_EQ(moves(2.0, 0), 1 + 2 * 39) << "above it the two swap each time";
  EXPECT_LE(moves(2.0, 9), 1 + 2 * 4) << "unless they dwell";
}

TEST(ScorePolicy, IsAPureFunction) {
  const auto p = pages("RASRASRASRRR", {.1f, .1f, .1f, .1f, .1f, .1f, .1f, .1f, .1f, .0f, .0f, .1f});
  const std::string first = run(options(), p);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(run(options(), p), first);
}

TEST(ScorePolicy, NothingToDecideIsFine) {
  EXPECT_EQ(run(options(), {}), "");
  auto p = pages("R");
  p[0].sealed = false;
  EXPECT_EQ(run(options(), p), "R");
}

TEST(ScorePolicy, RefusesNumbersThatMakeNoSense) {
  EXPECT_TRUE(ScorePolicy::validate({}).ok());
  using O = ScorePolicy::Options;
  const auto refused = [](void (*change)(O&), const char* name) {
    O o;
    change(o);
    const Status status = ScorePolicy::validate(o);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  };
  refused([](O& o) { o.recent_tokens = -1; }, "recent_tokens");
  refused([](O& o) { o.anchor_tokens = -1; }, "anchor_tokens");
  refused([](O& o) { o.weight_age = -.1; }, "weight_age");
  refused([](O& o) { o.weight_score = std::numeric_limits<double>::quiet_NaN(); }, "weight_score");
  refused([](O& o) { o.weight_score = o.weight_age = o.weight_shared = 0; }, "weight_score");
  refused([](O& o) { o.enter_ratio = .9; }, "enter_ratio");
  refused([](O& o) { o.least_score = .1; }, "least_score");
  refused([](O& o) { o.leave_score = std::numeric_limits<double>::infinity(); }, "leave_score");
}

}  // namespace
}  // namespace varve::cache
