// Which rows of a block stay exact.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "format/lr/select.h"

namespace varve::format {
namespace {

struct Rows {
  explicit Rows(int tokens, float e = 1.0f)
      : error(static_cast<size_t>(tokens), e),
        collision(static_cast<size_t>(tokens)),
        state(static_cast<size_t>(tokens), RowState::kFree) {
    state[0] = RowState::kNeverNeeded;
  }
  std::vector<float> error, collision;
  std::vector<RowState> state;

  RowSelection select(int budget, const TokenTraits& traits = {}, float coverage = 0, float edge = 0) const {
    LowRankOptions options;
    options.coverage_bonus = coverage;
    options.edge_bonus = edge;
    return select_rows({error, collision, state}, traits, options, budget);
  }
};

using Indices = std::vector<uint16_t>;

TEST(LrSelect, TheWorstRowsInTheirOrder) {
  Rows rows(128, 0.1f);
  rows.error[100] = 3;
  rows.error[5] = 2;
  rows.error[64] = 1;
  EXPECT_EQ(rows.select(3).rows, (Indices{5, 64, 100}));
  EXPECT_EQ(rows.select(1).rows, (Indices{100}));
  EXPECT_EQ(rows.select(0).rows, Indices{});
}

TEST(LrSelect, RowsWithoutErrorTakeNothing) {
  Rows rows(64, 0.0f);
  rows.error[9] = 0.5f;
  EXPECT_EQ(rows.select(40).rows, (Indices{9}));
  TokenTraits traits;
  traits.runs = {{20, 24, true}};
  const RowSelection selection = rows.select(40, traits);
  EXPECT_EQ(selection.rows, (Indices{9}));
  EXPECT_EQ(selection.runs_left_out, 0) << "a run that decodes exactly is not left out";
}

TEST(LrSelect, BoostsBelongToTheTokenAtTheirOffset) {
  // The anchor is row 0 and takes no row; a boost must not slide by it.
  Rows rows(64);
  TokenTraits traits;
  traits.boost.assign(64, 1.0f);
  traits.boost[0] = 100;
  traits.boost[1] = 20;
  traits.boost[63] = 10;
  EXPECT_EQ(rows.select(2, traits).rows, (Indices{1, 63}));
}

TEST(LrSelect, ARunIsTakenWholeOrNotAtAll) {
  Rows rows(64, 0.01f);
  TokenTraits traits;
  traits.runs = {{10, 21}};
  for (int t = 10; t < 21; ++t) rows.error[static_cast<size_t>(t)] = 5;
  const RowSelection short_of_one = rows.select(10, traits);
  EXPECT_EQ(short_of_one.runs_left_out, 1);
  EXPECT_EQ(short_of_one.rows_of_runs, 0);
  EXPECT_EQ(short_of_one.rows.size(), 10u) << "others take the rows";
  for (const uint16_t t : short_of_one.rows) EXPECT_TRUE(t < 10 || t >= 21) << t;
  const RowSelection whole = rows.select(11, traits);
  EXPECT_EQ(whole.rows, (Indices{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(whole.rows_of_runs, 11);
  EXPECT_EQ(whole.runs_left_out, 0);
}

TEST(LrSelect, AskedRunsComeFirst) {
  Rows rows(64, 1.0f);
  TokenTraits traits;
  traits.runs = {{4, 8, false}, {40, 44, true}};
  for (int t = 4; t < 8; ++t) rows.error[static_cast<size_t>(t)] = 50;
  rows.error[60] = 90;
  EXPECT_EQ(rows.select(4, traits).rows, (Indices{40, 41, 42, 43}));
  EXPECT_EQ(rows.select(5, traits).rows, (Indices{40, 41, 42, 43, 60}));
  EXPECT_EQ(rows.select(9, traits).rows, (Indices{4, 5, 6, 7, 40, 41, 42, 43, 60}));
}

TEST(LrSelect, RunsAtTheEdgesOfTheBlock) {
  Rows rows(128, 0.5f);
  TokenTraits traits;
  traits.runs = {{0, 3, true}, {62, 66, true}, {125, 128, true}};
  // The anchor is exact already: its run takes two rows.
  const RowSelection selection = rows.select(9, traits);
  EXPECT_EQ(selection.rows, (Indices{1, 2, 62, 63, 64, 65, 125, 126, 127}));
  EXPECT_EQ(selection.rows_of_runs, 9);
  EXPECT_EQ(rows.select(8, traits).runs_left_out, 1);
}

TEST(LrSelect, ABlockOfDigits) {
  // Every token in a run, more than the budget holds: as many whole runs as fit.
  Rows rows(256, 1.0f);
  TokenTraits traits;
  for (int begin = 0; begin < 256; begin += 8) traits.runs.push_back({begin, begin + 8});
  const RowSelection selection = rows.select(50, traits);
  // The anchor's run takes 7 rows, five others 40 of the 43 left.
  EXPECT_EQ(selection.rows.size(), 47u);
  EXPECT_EQ(selection.rows_of_runs, 47);
  EXPECT_EQ(selection.runs_left_out, 26);
  TokenTraits one;
  one.runs = {{0, 256}};
  EXPECT_TRUE(rows.select(254, one).rows.empty());
  EXPECT_EQ(rows.select(255, one).rows.size(), 255u);
}

TEST(LrSelect, LostRowsComeBeforeEverything) {
  Rows rows(64, 5.0f);
  TokenTraits traits;
  traits.runs = {{10, 12, true}, {30, 34, true}};
  for (int t = 30; t < 34; ++t) rows.error[static_cast<size_t>(t)] = 9;
  for (const size_t t : {size_t{31}, size_t{50}}) {
    rows.state[t] = RowState::kLost;
    rows.error[t] = 0;
  }
  EXPECT_EQ(rows.select(2, traits).rows, (Indices{31, 50}));
  EXPECT_EQ(rows.select(4, traits).rows, (Indices{10, 11, 31, 50}));
  EXPECT_EQ(rows.select(7, traits).rows, (Indices{10, 11, 30, 31, 32, 33, 50}));
}

TEST(LrSelect, RowsReadFromElsewhereAreNeverTaken) {
  Rows rows(64, 5.0f);
  for (size_t t = 0; t < 16; ++t) rows.state[t] = RowState::kNeverNeeded;
  TokenTraits traits;
  traits.runs = {{12, 18, true}};
  EXPECT_EQ(rows.select(2, traits).rows, (Indices{16, 17}));
  for (const uint16_t t : rows.select(63, traits).rows) EXPECT_GE(t, 16);
}

TEST(LrSelect, CoverageLiftsTheWorstRowOfEachTile) {
  Rows rows(256, 0.0f);
  for (size_t t = 1; t < 64; ++t) rows.error[t] = 1.0f;
  rows.error[70] = rows.error[130] = rows.error[250] = 0.9f;
  EXPECT_EQ(rows.select(3).rows, (Indices{1, 2, 3}));
  EXPECT_EQ(rows.select(4, {}, 0.25f).rows, (Indices{1, 70, 130, 250}));
}

TEST(LrSelect, EdgesLiftRowsWhoseKeyBecameItsNeighbours) {
  Rows rows(64, 1.0f);
  rows.error[20] = 0.9f;
  rows.collision[20] = 1.0f;
  EXPECT_EQ(rows.select(1).rows, (Indices{1}));
  EXPECT_EQ(rows.select(1, {}, 0, 0.25f).rows, (Indices{20}));
}

TEST(LrSelect, NeverMoreThanTheBudgetNeverHalfARun) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    const int tokens = 64 * (1 + below(4));
    Rows rows(tokens);
    TokenTraits traits;
    traits.boost.resize(static_cast<size_t>(tokens));
    for (size_t t = 0; t < rows.error.size(); ++t) {
      rows.error[t] = static_cast<float>(below(1000)) / 1000;
      rows.collision[t] = static_cast<float>(below(100)) / 100;
      traits.boost[t] = below(10) == 0 ? 20.0f : 1.0f;
    }
    for (int t = below(3); t < tokens;) {
      const int end = std::min(tokens, t + 1 + below(32));
      traits.runs.push_back({t, end, below(5) == 0});
      t = end + below(20);
    }
    const int budget = below(tokens);
    const RowSelection selection = rows.select(budget, traits, 0.25f, 0.25f);
    EXPECT_LE(selection.rows.size(), static_cast<size_t>(budget));
    EXPECT_TRUE(std::is_sorted(selection.rows.begin(), selection.rows.end(), std::less_equal<>())) << seed;
    int in_runs = 0, left_out = 0;
    for (const TokenRun& run : traits.runs) {
      int taken = 0, takes = 0;
      float worth = 0;
      for (int t = run.begin; t < run.end; ++t) {
        taken += std::binary_search(selection.rows.begin(), selection.rows.end(), t);
        takes += t != 0;
        if (t != 0) worth += rows.error[static_cast<size_t>(t)];
      }
      EXPECT_TRUE(taken == 0 || taken == takes) << "seed " << seed << " run at " << run.begin;
      in_runs += taken;
      left_out += taken == 0 && takes > 0 && worth > 0;
    }
    EXPECT_EQ(selection.rows_of_runs, in_runs);
    EXPECT_EQ(selection.runs_left_out, left_out);
    EXPECT_EQ(rows.select(budget, traits, 0.25f, 0.25f).rows, selection.rows);
  }
}

}  // namespace
}  // namespace varve::format
