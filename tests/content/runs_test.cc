// Runs: which tokens stay together, where they end, what a question asks for.

#include "content/runs.h"

#include <gtest/gtest.h>

#include "support.h"

namespace varve::content {
namespace {

using namespace test;
using Texts = std::vector<std::string>;

Texts runs(const std::string& marked, const ContentOptions& options = {}) {
  const Tokens tokens(marked);
  return run_texts(tokens, traits_of(tokens, 0, options));
}

TEST(Runs, ACodeInElevenTokensIsOneRun) {
  EXPECT_EQ(runs(" the| password| is| F|al|con|-|9|4|2|7|-|6|1|8|3|.| Keep| it"), Texts{" Falcon-9427-6183"});
}

TEST(Runs, CodesOfEveryKind) {
  EXPECT_EQ(runs(" call| get|_user|_name| now"), Texts{" get_user_name"});
  EXPECT_EQ(runs(" call| get|Value|()| now"), Texts{" getValue"});
  EXPECT_EQ(runs(" at| NASA| they| sit"), Texts{" NASA"});
  EXPECT_EQ(runs(" blue|-|tiger|-|river| was"), Texts{" blue-tiger-river"});
  EXPECT_EQ(runs(" it| is| -|5| outside"), Texts{" -5"});
  EXPECT_EQ(runs(" id| a|3|f|9|c| end"), Texts{" a3f9c"});
  EXPECT_EQ(runs(" self|.|__|init|__| x"), Texts{"__init"});
  EXPECT_EQ(runs(" host| 192|.|168|.|0|.|1| up"), Texts{" 192.168.0.1"}) << "dots inside are no ends of sentences";
  EXPECT_EQ(runs(" sum| 1|,|234|,|567|.|89| due"), Texts{" 1,234,567.89"});
  EXPECT_EQ(runs(" at| 12|:|30| sharp"), Texts{" 12:30"});
  EXPECT_EQ(runs(" plain| words| and| I| say| A| word| - with| dashes| --flag"), Texts{});
}

TEST(Runs, BeginWithTheirOwner) {
  EXPECT_EQ(runs(" the| Bo|eing| 7|4|7| flew"), Texts{" Boeing 747"});
  EXPECT_EQ(runs(" for| Maria| Lopez|:| 4|7|1|1| please"), Texts{" Maria Lopez: 4711"});
  EXPECT_EQ(runs(" that| Maria| is| 4|7|1|1| please"), Texts{" Maria is 4711"}) << "one token between";
  EXPECT_EQ(runs(" that| Maria| has| the| 4|7|1|1| please"), Texts{" 4711"}) << "two tokens between";
  EXPECT_EQ(runs(" to| Maria|.| 4|7| men"), Texts{" 47"}) << "another sentence";
  EXPECT_EQ(runs(" the| trees|.| Trees| 4|7"), Texts{" 47"}) << "a common word with a capital owns nothing";
}

TEST(Runs, JoinOverOneTokenAndNoMore) {
  EXPECT_EQ(runs(" from| 12| to| 34| only"), Texts{" 12 to 34"});
  EXPECT_EQ(runs(" from| 12| up| to| 34| only"), (Texts{" 12", " 34"}));
  ContentOptions options;
  options.run_gap_tokens = 2;
  EXPECT_EQ(runs(" from| 12| up| to| 34| only", options), Texts{" 12 up to 34"});
  options.run_gap_tokens = 0;
  EXPECT_EQ(runs(" from| 12| to| 34| only", options), (Texts{" 12", " 34"}));
}

TEST(Runs, NeverCrossTheEndOfASentenceOrLine) {
  for (const char* end : {"\n", ".", "!", "?", "。", "！", "？", "।", "؟", "…", "", "\r\n", ".\n\n", "\xE2\x80\xA8"}) {
    EXPECT_EQ(runs(std::string(" 12|") + end + "| 34"), (Texts{" 12", " 34"})) << "'" << end << "'";
  }
  EXPECT_EQ(runs(" 12|,| 34"), Texts{" 12, 34"});
  // One token on both sides of the end of a line: it belongs to the first.
  EXPECT_EQ(runs(" 1|2\n3|4| x"), (Texts{" 12\n3", "4"}));
  EXPECT_EQ(runs(" 1\n2| 3| x"), (Texts{" 1\n2", " 3"}));
}

TEST(Runs, LongOnesAreCutBetweenWords) {
  std::string table = "12";
  for (int i = 0; i < 30; ++i) table += "| 345|678|9";
  const Tokens tokens(table);
  const auto traits = traits_of(tokens);
  ASSERT_GE(traits.runs.size(), 3u);
  for (const format::TokenRun& run : traits.runs) {
    EXPECT_LE(run.end - run.begin, 32);
    EXPECT_TRUE(run.begin == 0 || tokens.joined(run.begin, run.begin + 1) == " 345") << run.begin;
  }
  EXPECT_EQ(traits.runs.back().end, tokens.size());

  const Tokens pi("3|1|4|1|5", 20);  // a hundred digits with nothing between
  const auto digits = traits_of(pi);
  ASSERT_EQ(digits.runs.size(), 4u);
  EXPECT_EQ(digits.runs[2], (format::TokenRun{64, 96, false}));
  EXPECT_EQ(digits.runs[3], (format::TokenRun{96, 100, false}));
  ContentOptions options;
  options.most_run_tokens = 0;
  EXPECT_TRUE(traits_of(pi, 0, options).runs.empty());
}

TEST(Runs, AllDigitsAndNoLetters) {
  const Tokens digits(" 4| 7| 1", 400);
  const auto traits = traits_of(digits);
  int covered = 0;
  for (const format::TokenRun& run : traits.runs) covered += run.end - run.begin;
  EXPECT_EQ(covered, digits.size()) << "every token is in a run";
  EXPECT_EQ(traits.rank_boost, 1.5f);
  EXPECT_TRUE(traits_of(Tokens(" +| (| )| ;| {| }", 50)).runs.empty());
}

TEST(Runs, ASentenceInCapitalsHasNoCodes) {
  EXPECT_EQ(runs(" THERE| IS| NO| WARRANTY| FOR| IT|,| says| GNU| now"), Texts{" GNU"});
  EXPECT_EQ(runs(" CODE| AB|-|12| FOR| YOU| AND| ME| AND| ALL"), Texts{" CODE AB-12"});
}

TEST(Runs, InScriptsWithoutCaseOrSpaces) {
  EXPECT_EQ(runs("订|单|号|2|0|2|3|1|1|0|5|已|发|货"), Texts{"20231105"});
  EXPECT_EQ(runs("注文|１|２|-|３|です"), Texts{"１２-３"});
  EXPECT_EQ(runs(" дом| Ма|рия|-|12|б| и"), Texts{" Мария-12б"});
  EXPECT_EQ(runs(" улица| Ленина| 1|2| и"), Texts{" Ленина 12"});
}

TEST(Runs, ThatCrossThePageAreClippedAndWholeInside) {
  const Tokens text(" the| word| F|al|con|-|9|4|2|7|-|6|1|8|3|.");
  for (int begin = 1; begin < text.size() - 1; ++begin) {
    // The page starts inside: what is left of the run.
    const auto traits = traits_of(text, begin);
    ASSERT_EQ(traits.runs.size(), 1u) << begin;
    EXPECT_EQ(traits.runs[0], (format::TokenRun{std::max(0, 2 - begin), 15 - begin, false})) << begin;
  }
  const auto all = text.all();
  for (size_t end = 6; end < all.size(); ++end) {
    // The page ends inside: once the part that is there is a code, it is one run up to the end.
    const auto traits = page_traits({}, {}, std::span<const Token>(all).first(end));
    const bool code = end >= 7;  // "Falcon-" joins nothing yet
    ASSERT_EQ(traits.runs.size(), code ? 1u : 0u) << end;
    if (code) {
      EXPECT_EQ(traits.runs[0], (format::TokenRun{2, end == 11 ? 10 : std::min(static_cast<int>(end), 15), false}));
    }
  }
}

TEST(Runs, OwnersBeforeThePageAreKnown) {
  const Tokens text(" by| Bo|eing| 7|4|7");
  EXPECT_EQ(traits_of(text, 2).runs[0], (format::TokenRun{0, 4, false}));
  EXPECT_EQ(traits_of(text, 3).runs[0], (format::TokenRun{0, 3, false}));
  EXPECT_EQ(traits_of(text, 2, no_rare()).boost[0], 14.6f) << "the end of a name";
}

TEST(Asked, RunsOfTheQuestionsSentencesComeFirst) {
  Tokens text("the| road| and| the| town| and| the| road|.\n", 30);
  text += Tokens("the| locker| of| Maria| has| the| number| 4|7|1|1|.\n|the| bicycle| has| the| number| 8|2|.");
  const auto asked = [&](const std::string& question_text) {
    const Tokens words(question_text);
    const auto all = words.all();
    const Question question({}, all);
    std::vector<bool> out;
    for (const format::TokenRun& run : traits_of(text, 0, {}, &question).runs) out.push_back(run.asked);
    return out;
  };
  EXPECT_EQ(asked(" what| is| Maria|'s| code|?"), (std::vector<bool>{true, false}));
  EXPECT_EQ(asked(" the| BICY|CLE| and| its| plate|?"), (std::vector<bool>{false, true}));
  EXPECT_EQ(asked(" the| road| and| the| town|?"), (std::vector<bool>{false, false}))
      << "words that are everywhere tell nothing";
  for (const format::TokenRun& run : traits_of(text).runs) EXPECT_FALSE(run.asked) << "unless a question is given";
}

TEST(Asked, WithoutAQuestionTheEndOfThePromptStandsIn) {
  Tokens prompt(" first| Maria| then");
  prompt += Tokens(" some", static_cast<int>(kAskedTokens) - 2);
  prompt += Tokens(" bicycle| now");
  const auto all = prompt.all();
  const auto asks = [](const Question& question, const std::string& word) {
    return question.asks_for(read_words(Tokens(word).all(), false).terms.at(0));
  };
  const Question last(all, {});
  EXPECT_TRUE(asks(last, "Bicycle"));
  EXPECT_TRUE(asks(last, "now"));
  EXPECT_FALSE(asks(last, "then")) << "one token too early";
  const Tokens span(" Maria|?");
  const auto span_all = span.all();
  const Question given(all, span_all);
  EXPECT_TRUE(asks(given, "maria"));
  EXPECT_FALSE(asks(given, "now"));
}

}  // namespace
}  // namespace varve::content
