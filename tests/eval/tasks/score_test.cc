#include "eval/tasks/score.h"

#include <gtest/gtest.h>

#include "eval/tasks/longbench_metrics.h"

namespace varve::eval {
namespace {

Item item(Scorer scorer, std::vector<std::string> references, std::vector<std::string> choices = {}) {
  Item made;
  made.scorer = scorer;
  made.references = std::move(references);
  made.choices = std::move(choices);
  return made;
}

TEST(Score, ContainsCountsReferencesIgnoringCase) {
  const Item four = item(Scorer::kContains, {"1234567", "AbC", "x-9", "7654321"});
  EXPECT_EQ(score(four, " 1234567, abc and X-9."), 0.75);
  EXPECT_EQ(score(four, "7654321 1234567 ABC x-9"), 1);
  EXPECT_EQ(score(four, "1234568"), 0);
  EXPECT_EQ(score(four, ""), 0);
  EXPECT_EQ(score(item(Scorer::kContains, {}), "anything"), 0);
}

TEST(Score, OneReferenceSuffices) {
  const Item any = item(Scorer::kContainsAny, {"Denver Broncos", "Broncos"});
  EXPECT_EQ(score(any, "the broncos won"), 1);
  EXPECT_EQ(score(any, "the Panthers won"), 0);
}

TEST(Score, FirstCandidateDecides) {
  const Item city = item(Scorer::kFirstCandidate, {"Lima"}, {"Oslo", "Lima", "Limassol", "San Lima"});
  EXPECT_EQ(score(city, " Lima, not Oslo."), 1);
  EXPECT_EQ(score(city, " lima"), 1);
  EXPECT_EQ(score(city, " Oslo, or perhaps Lima."), 0);
  EXPECT_EQ(score(city, " Limassol. Lima"), 0);  // a word of its own
  EXPECT_EQ(score(city, " San Lima"), 0);        // begins earlier
  EXPECT_EQ(score(city, " Paris"), 0);
  EXPECT_EQ(score(item(Scorer::kFirstCandidate, {"New York City"}, {"New York", "New York City"}), "New York City."),
            1);
}

TEST(Score, FirstNumberDecides) {
  const Item number = item(Scorer::kFirstNumber, {"4821"}, {"4821", "1111"});
  EXPECT_EQ(score(number, " 4821."), 1);
  EXPECT_EQ(score(number, " 4,821 (not 1111)"), 1);
  EXPECT_EQ(score(number, " 48211"), 0);
  EXPECT_EQ(score(number, " 1111, then 4821"), 0);
  EXPECT_EQ(score(number, " 4821,1111"), 1);  // no comma of thousands: two numbers
  EXPECT_EQ(score(number, " 4821,111"), 1);
  EXPECT_EQ(score(item(Scorer::kFirstNumber, {"1234567"}), "1,234,567 or so"), 1);
  EXPECT_EQ(score(number, " none"), 0);
}

TEST(Score, ChoiceAndCopy) {
  const Item choice = item(Scorer::kChoice, {"B"}, {"A", "B"});
  EXPECT_EQ(score(choice, "B"), 1);
  EXPECT_EQ(score(choice, "A"), 0);
  const Item copy = item(Scorer::kCopy, {"abcd"});
  EXPECT_EQ(score(copy, "abxx"), 0.5);
  EXPECT_EQ(score(copy, "abcdef"), 1);
  EXPECT_EQ(score(copy, ""), 0);
}

TEST(Score, LetterOfTheSentence) {
  EXPECT_EQ(choice_letter("The correct answer is (C)."), 'C');
  EXPECT_EQ(choice_letter("So: **The correct answer is (B)**"), 'B');
  EXPECT_EQ(choice_letter("The correct answer is D"), 'D');
  EXPECT_EQ(choice_letter("The correct answer is (insert). The correct answer is (A)"), 'A');
  EXPECT_EQ(choice_letter("The correct answer is A, no: The correct answer is (B)"), 'B');  // brackets first
  EXPECT_EQ(choice_letter("The correct answer is (E)"), 0);
  EXPECT_EQ(choice_letter("the correct answer is (A)"), 0);
  EXPECT_EQ(choice_letter("The correct answer is "), 0);
  EXPECT_EQ(choice_letter("(A)"), 0);
  const Item letter = item(Scorer::kChoiceLetter, {"C"}, {"A", "B", "C", "D"});
  EXPECT_EQ(score(letter, "The correct answer is (C)"), 1);
  EXPECT_EQ(score(letter, "The correct answer is (A)"), 0);
  EXPECT_EQ(score(letter, "C"), 0);
}

TEST(LongBench, AnswersAreNormalised) {
  EXPECT_EQ(normalized_answer("  The Cat's  an  \"animal\", a  theme. "), "cats animal theme");
  EXPECT_EQ(normalized_answer("A"), "");
}

TEST(LongBench, F1OfWords) {
  EXPECT_DOUBLE_EQ(qa_f1("The Eiffel Tower, in Paris", "eiffel tower"), 2 * 0.5 * 1 / 1.5);
  EXPECT_EQ(qa_f1("Yes.", "yes"), 1);
  EXPECT_EQ(qa_f1("no", "yes"), 0);
  EXPECT_EQ(qa_f1("", "yes"), 0);
  EXPECT_DOUBLE_EQ(qa_f1("b b b", "b c"), 2 * (1.0 / 3) * 0.5 / (1.0 / 3 + 0.5));  // one b of the reference
  EXPECT_EQ(score(item(Scorer::kF1, {"nothing", "Paris"}), "paris"), 1);           // the best reference counts
}

TEST(LongBench, RougeLAsThePackageOfLongBench) {
  // Values of rouge 1.0.1.
  EXPECT_NEAR(rouge_l("the cat sat on the mat.", "the cat lay on the mat."), 0.8, 1e-7);
  EXPECT_NEAR(rouge_l("police killed the gunman", "police kill the gunman"), 0.75, 1e-7);
  EXPECT_NEAR(rouge_l("w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"), 0.6153846, 1e-7);
  EXPECT_NEAR(rouge_l("The committee met on Monday. It approved the budget after a long debate. ",
                      "On Monday the committee approved the budget. The debate was long."),
              0.5, 1e-7);
  EXPECT_NEAR(rouge_l("one two. three four. ", "one two three four"), 0.8888889, 1e-7);
  EXPECT_EQ(rouge_l("a b c", "x y z"), 0);
  EXPECT_EQ(rouge_l("", "x"), 0);
  EXPECT_EQ(rouge_l("x", ""), 0);
}

TEST(LongBench, ClassesThatAreNamed) {
  const std::vector<std::string> classes = {"Date", "Person", "Birth Date", "City"};
  EXPECT_EQ(classification("Person", "Person", classes), 1);
  EXPECT_EQ(classification("Person or City", "Person", classes), 0.5);
  EXPECT_EQ(classification("Birth Date", "Birth Date", classes), 1);  // "Date" is a part of it
  EXPECT_EQ(classification("Birth Date", "Date", classes), 0.5);
  EXPECT_EQ(classification("City", "Person", classes), 0);
  EXPECT_EQ(classification("", "Person", classes), 0);
}

TEST(LongBench, OnlyTheFirstLineWhereTheDatasetSaysSo) {
  Item trec = item(Scorer::kAccuracy, {"City"}, {"City", "Person"});
  const std::string answer = "\n\nCity\nQuestion: Who?\nType: Person";
  EXPECT_EQ(score(trec, answer), 0.5);
  trec.first_line_only = true;
  EXPECT_EQ(score(trec, answer), 1);
}

}  // namespace
}  // namespace varve::eval
