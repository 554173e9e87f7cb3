#include "eval/tasks/haystack.h"

#include <gtest/gtest.h>

#include <set>

#include "eval/tasks/fit.h"
#include "eval/tasks/support.h"
#include "eval/tasks/truncate.h"

namespace varve::eval {
namespace {

TEST(Haystack, NeedlesLieBeforeTheirPieces) {
  const Haystack haystack = insert_needles({"a", "b", "c"}, {{"[2]", 2}, {"[end]", 3}, {"[0]", 0}, {"[2 too]", 2}});
  EXPECT_EQ(haystack.text, "[0]ab[2][2 too]c[end]");
  EXPECT_EQ(haystack.needle_offsets, (std::vector<size_t>{5, 16, 0, 8}));
}

TEST(Haystack, DepthsAreSharesOfTokens) {
  const CountTokens bytes = [](std::string_view text) { return static_cast<int>(text.size()); };
  EXPECT_EQ(token_depths("0123456789", {5, 0, 10, 2}, bytes), (std::vector<double>{0.5, 0, 1, 0.2}));
}

TEST(Haystack, NearestBoundaryByTokens) {
  EXPECT_EQ(nearest_boundaries({1, 7, 2}, {0, 0.04, 0.3, 0.4, 0.5, 0.8, 0.95, 1}),
            (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(nearest_boundaries({}, {0.5}), (std::vector<int>{0}));
}

TEST(Haystack, GridDepthsAreDifferentAndOnTheGrid) {
  Random random(4);
  const GridDepths depths(random);
  const std::vector<int> equal(390, 1);
  const std::vector<int> at = depths.positions(equal, 40);
  EXPECT_EQ(std::set<int>(at.begin(), at.end()).size(), 40u);
  for (const int position : at) EXPECT_EQ(position % 10, 0);
  // The same points for another size.
  const std::vector<int> larger = depths.positions(std::vector<int>(3900, 1), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(larger[i], 10 * at[i]);
  // As many boundaries as needles suffice.
  for (int pieces = 0; pieces < 8; ++pieces) {
    const std::vector<int> few = depths.positions(std::vector<int>(static_cast<size_t>(pieces), 5), pieces + 1);
    EXPECT_EQ(std::set<int>(few.begin(), few.end()).size(), static_cast<size_t>(pieces) + 1);
  }
}

TEST(Haystack, SentencesGoOnFromTheBeginning) {
  const SentenceText text({"three", "One. Two. Three."}, testing::count_pieces);
  ASSERT_EQ(text.size(), 3);
  std::string joined;
  for (const std::string_view piece : text.from(2, 3)) joined += piece;
  EXPECT_EQ(joined, "Three.\n\nOne. Two. ");
  EXPECT_EQ(text.tokens_from(2, 2), (std::vector<int>{4, 2}));
  EXPECT_EQ(SentenceText({"blank", " \n "}, testing::count_pieces).size(), 0);
}

TEST(Fit, FindsTheLargestThatFits) {
  for (const int units : {0, 1, 5, 31, 32, 33, 200, 4095, 10000}) {
    int asked = 0;
    const auto linear = [&](int n) { return ++asked, 50 + 7 * n; };
    EXPECT_EQ(fit_units(10000, 50 + 7 * units + 6, linear), units);
    EXPECT_LE(asked, 12);
    const auto curved = [](int n) { return 50 + n + n * n / 1000; };
    EXPECT_EQ(fit_units(10000, curved(units), curved), units);
  }
  EXPECT_EQ(fit_units(100, 49, [](int n) { return 50 + n; }), -1);
  EXPECT_EQ(fit_units(0, 1000, [](int n) { return n; }), 0);
  EXPECT_EQ(fit_units(100, 1000000, [](int n) { return n; }), 100);
}

TEST(Truncate, KeepsBothEndsWithinTheTokens) {
  const std::string text = testing::made_document("long", 400).text;
  const int all = testing::count_pieces(text);
  for (const int tokens : {2, 3, 100, 1001, all - 1}) {
    const Truncated cut = truncate_middle(text, tokens, testing::count_pieces);
    EXPECT_LE(testing::count_pieces(cut.text), tokens);
    EXPECT_GE(testing::count_pieces(cut.text), tokens - 3);
    EXPECT_EQ(cut.dropped_tokens, all - testing::count_pieces(cut.text));
    EXPECT_EQ(cut.text.front(), text.front());
    EXPECT_EQ(cut.text.back(), text.back());
  }
  EXPECT_EQ(truncate_middle(text, all, testing::count_pieces).text, text);
  EXPECT_EQ(truncate_middle(text, all, testing::count_pieces).dropped_tokens, 0);
  EXPECT_EQ(truncate_middle(text, 0, testing::count_pieces).text, "");
}

TEST(Truncate, CutsBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "é漢🙂";
  const CountTokens bytes = [](std::string_view part) { return static_cast<int>(part.size()); };
  for (int tokens = 20; tokens < 60; ++tokens) {
    const Truncated cut = truncate_middle(text, tokens, bytes);
    const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    size_t characters = 0, needed = 0;
    for (size_t at = 0; at < cut.text.size(); ++at) {
      if (starts(cut.text[at])) {
        ++characters;
        const auto lead = static_cast<unsigned char>(cut.text[at]);
        needed += lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
      }
    }
    EXPECT_EQ(needed, cut.text.size()) << tokens;
    EXPECT_GT(characters, 4u);
  }
}

}  // namespace
}  // namespace varve::eval
