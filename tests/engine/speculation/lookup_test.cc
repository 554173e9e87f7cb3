#include "engine/speculation/lookup.h"

#include <gtest/gtest.h>

namespace varve::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens lookup(const Tokens& history, int most, LookupOptions options = {}) {
  const auto lookup = PromptLookup::create(options);
  EXPECT_TRUE(lookup.ok()) << lookup.status().message();
  Draft draft;
  draft.tokens = {99};
  EXPECT_TRUE((*lookup)->draft(history, most, draft).ok());
  EXPECT_TRUE(draft.drawn_from.empty());
  return draft.tokens;
}

TEST(Lookup, ContinuesWhatCameBefore) {
  EXPECT_EQ(lookup({1, 2, 3, 4, 5, 9, 1, 2}, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(lookup({1, 2, 3, 4, 5, 9, 1, 2}, 1), (Tokens{3}));
  EXPECT_EQ(lookup({1, 2, 3, 4, 5, 6}, 3), Tokens{});
  EXPECT_EQ(lookup({1, 2, 3, 9, 8, 2}, 3), Tokens{}) << "one token is not enough";
  EXPECT_EQ(lookup({1, 2, 3, 9, 8, 2}, 2, {.least_ngram = 1}), (Tokens{3, 9}));
}

TEST(Lookup, TheLongestMatchFirstThenTheLatest) {
  EXPECT_EQ(lookup({1, 2, 3, 70, 9, 2, 3, 80, 9, 1, 2, 3}, 1), (Tokens{70}));
  EXPECT_EQ(lookup({2, 3, 70, 9, 2, 3, 80, 9, 9, 2, 3}, 1), (Tokens{80}));
  EXPECT_EQ(lookup({1, 2, 3, 70, 9, 2, 3, 80, 5, 1, 2, 3}, 1, {.least_ngram = 2, .most_ngram = 2}), (Tokens{80}))
      << "no longer match is looked for";
}

TEST(Lookup, RepetitionIsDraftedToAnyLength) {
  EXPECT_EQ(lookup({5, 7, 7, 7}, 4), (Tokens{7, 7, 7, 7}));
  EXPECT_EQ(lookup({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(Lookup, ShortHistories) {
  EXPECT_EQ(lookup({}, 3), Tokens{});
  EXPECT_EQ(lookup({1}, 3), Tokens{});
  EXPECT_EQ(lookup({1, 1}, 2), Tokens{});
  EXPECT_EQ(lookup({1, 1}, 2, {.least_ngram = 1}), (Tokens{1, 1}));
}

TEST(Lookup, SizesOutOfBounds) {
  for (const LookupOptions& bad :
       {LookupOptions{0, 3}, LookupOptions{-1, 3}, LookupOptions{4, 3}, LookupOptions{1, 65}}) {
    EXPECT_EQ(PromptLookup::create(bad).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace varve::engine
