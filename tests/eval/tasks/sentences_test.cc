#include "eval/tasks/sentences.h"

#include <gtest/gtest.h>

#include <string>

#include "eval/tasks/support.h"

namespace varve::eval {
namespace {

std::vector<std::string> sentences(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view piece : split_sentences(text)) out.emplace_back(trimmed(piece));
  return out;
}

using Strings = std::vector<std::string>;

TEST(Sentences, EndWithAMarkBeforeACapital) {
  EXPECT_EQ(sentences("One is here. Two is (there.) Is three? “Four!” Five"),
            (Strings{"One is here.", "Two is (there.)", "Is three?", "“Four!”", "Five"}));
  EXPECT_EQ(sentences("It costs 3.50 now, e.g. Monday. then lower"),
            (Strings{"It costs 3.50 now, e.g. Monday. then lower"}));
  EXPECT_EQ(sentences("Mr. Smith met J. Random. They talked."), (Strings{"Mr. Smith met J. Random.", "They talked."}));
}

TEST(Sentences, NumbersOfListItemsEndNothing) {
  EXPECT_EQ(sentences("It rains. 2. Assorted things. It was 1972. Then."),
            (Strings{"It rains.", "2. Assorted things.", "It was 1972.", "Then."}));
}

TEST(Sentences, ParagraphsAndLongTablesEndAtLines) {
  EXPECT_EQ(sentences("A heading\n\n  the text goes on\nhere"), (Strings{"A heading", "the text goes on\nhere"}));
  std::string table;
  for (int i = 0; i < 100; ++i) table += "cell cell cell cell\n";
  const auto pieces = split_sentences(table);
  ASSERT_EQ(pieces.size(), 3u);
  for (const std::string_view piece : pieces) {
    EXPECT_EQ(piece.back(), '\n');
    EXPECT_LE(piece.size(), 820u);
  }
}

TEST(Sentences, PiecesAreTheText) {
  for (const std::string& text : {testing::made_document("a", 200).text, std::string("  \n\n x. Y\n"), std::string("."),
                                  std::string(), std::string(" \n\n\n ")}) {
    std::string joined;
    for (const std::string_view piece : split_sentences(text)) joined += piece;
    EXPECT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace varve::eval
