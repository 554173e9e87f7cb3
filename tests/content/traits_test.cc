// Boosts by class and rarity, at the tokens they belong to; what is never boosted; determinism.

#include "content/traits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "support.h"

namespace varve::content {
namespace {

using namespace test;

constexpr float kDigit = 20.0f, kOwner = 14.6f, kRare = 7.3f;

/// Boosts of all tokens in order.
void expect_boosts(const Tokens& tokens, const std::vector<float>& expected, const ContentOptions& options) {
  EXPECT_EQ(traits_of(tokens, 0, options).boost, expected) << tokens.joined(0, tokens.size());
}

TEST(Boosts, StandAtTheirOwnTokensFromTheAnchorOn) {
  // A boost that is off by the anchor row would be seen at every place.
  for (int at = 0; at < 16; ++at) {
    std::string text;
    for (int i = 0; i < 16; ++i) text += std::string(i == 0 ? "" : "|") + (i == at ? " 7" : " the");
    std::vector<float> expected(16, 1.0f);
    expected[static_cast<size_t>(at)] = kDigit;
    expect_boosts(Tokens(text), expected, no_rare());
  }
}

TEST(Boosts, NamesDigitsAndRareWords) {
  expect_boosts(Tokens("|we| met| Mar|ia| at| gate| 4|7|."), {1, 1, 1, kOwner, kOwner, 1, 1, kDigit, kDigit, 1},
                no_rare());
  // A word is rare as a whole when one of its tokens is.
  Tokens common(" the| photo| of| the| photo| of| the| photo| of");
  common += Tokens(" photo|synth|.");
  expect_boosts(common, {1, 1, 1, 1, 1, 1, 1, 1, 1, kRare, kRare, 1}, classes_only());
}

TEST(Boosts, ACapitalThatStartsASentenceIsNoNameOfAKnownWord) {
  const Tokens text("|Trees| grow|.| Berlin| too|.| Old| trees| stay|.\n|Trees| and| Trees|.");
  const auto traits = traits_of(text, 0, no_rare());
  EXPECT_EQ(traits.boost[1], 1.0f) << "starts the text, and is known in small letters";
  EXPECT_EQ(traits.boost[4], kOwner) << "starts a sentence, never seen in small letters";
  EXPECT_EQ(traits.boost[11], 1.0f) << "starts a line";
  EXPECT_EQ(traits.boost[13], kOwner) << "a capital inside a sentence";
}

TEST(Boosts, RarityFollowsTheFormula) {
  ContentOptions options;
  options.rare_count = 0;
  const Tokens text(" a| a| a| a| a| a| a| a| a| a| a| a| a| a| a| b");
  const auto traits = traits_of(text, 0, options);
  EXPECT_EQ(traits.boost[0], 1.0f) << "IDF " << std::log(16 / 15.1) << " is below 2";
  EXPECT_FLOAT_EQ(traits.boost[15], static_cast<float>(1.5 * std::log(16 / 1.1)));
  options.least_idf = 3;
  EXPECT_EQ(traits_of(text, 0, options).boost[15], 1.0f);
  options = {};
  options.rarity_weight = 2;
  EXPECT_FLOAT_EQ(traits_of(text, 0, options).boost[15], static_cast<float>(7.3f * 2 * std::log(16 / 1.1)));
}

TEST(Boosts, CountEverythingBeforeThePageAndNothingAfterIt) {
  const Tokens text(" x| y| x| y| x| x| x| x| z| x| x| x| x| z| z| z");
  const auto all = text.all();
  const std::span<const Token> span(all);
  ContentOptions options;
  options.rare_count = 0;
  const auto second = page_traits(options, span.first(8), span.subspan(8, 4));
  EXPECT_FLOAT_EQ(second.boost[0], static_cast<float>(1.5 * std::log(12 / 1.1)));
  EXPECT_EQ(second.boost[1], 1.0f);
}

TEST(Boosts, PunctuationSpaceAndSymbolsNeverHaveOne) {
  const Tokens json(
      R"({"|name|":| "|Maria|",|\n|    | "|id|":| |4|7|1|1|,| "|tags|":| [],| "|ok|":| true|}| $| +| →| 。|«|	|  |)");
  ContentOptions options;
  options.rarity_weight = 100;
  const auto traits = traits_of(json, 0, options);
  const auto tokens = json.all();
  int plain = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool word =
        std::any_of(tokens[i].text.begin(), tokens[i].text.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    if (word) {
      EXPECT_GT(traits.boost[i], 1.0f) << tokens[i].text;
    } else {
      EXPECT_EQ(traits.boost[i], 1.0f) << "'" << tokens[i].text << "'";
      ++plain;
    }
  }
  EXPECT_GT(plain, 15);
}

TEST(Boosts, WorkInOtherScripts) {
  // Cyrillic, Greek, Armenian names; accented Latin, one letter cut into its bytes.
  expect_boosts(Tokens("|в| городе| Мос|ква| жил"), {1, 1, 1, kOwner, kOwner, 1}, no_rare());
  expect_boosts(Tokens("|στην| Αθήνα| ζει"), {1, 1, kOwner, 1}, no_rare());
  expect_boosts(Tokens("|նա| Երևան| գնաց"), {1, 1, kOwner, 1}, no_rare());
  expect_boosts(Tokens("|the| \xC3|\x89|lys|\xC3|\xA9|e| is"),
                {1, 1, kOwner, kOwner, kOwner, kOwner, kOwner, kOwner, 1}, no_rare());
  // Digits: full width (one of them in bytes), Arabic-Indic, Devanagari.
  expect_boosts(Tokens("号|\xEF|\xBC|\x97|８|の"), {1, kDigit, kDigit, kDigit, kDigit, 1}, no_rare());
  expect_boosts(Tokens(" رقم| ٤٧"), {1, kDigit}, no_rare());
  expect_boosts(Tokens(" कमरा| १२"), {1, kDigit}, no_rare());
}

TEST(Boosts, RarityWorksWithoutCaseOrSpaces) {
  Tokens text("的|我|们|在|的|我|们|在|的|我|们|在|的|我|们|在|。");
  text += Tokens("鹦|鹉|的|我|们");
  const auto traits = traits_of(text, 0, classes_only());
  const int parrot = text.find("鹦");
  EXPECT_EQ(traits.boost[static_cast<size_t>(parrot)], kRare);
  EXPECT_EQ(traits.boost[static_cast<size_t>(parrot + 1)], kRare);
  EXPECT_EQ(traits.boost[static_cast<size_t>(parrot + 2)], 1.0f) << "its neighbour is no part of a word with it";
  EXPECT_EQ(traits.boost[static_cast<size_t>(text.find("。"))], 1.0f);
}

TEST(Boosts, OffMeansTheErrorAlone) {
  ContentOptions options;
  options.on = false;
  const auto traits = traits_of(Tokens(" Maria| 4|7"), 0, options);
  EXPECT_TRUE(traits.boost.empty());
  EXPECT_TRUE(traits.runs.empty());
  EXPECT_EQ(traits.rank_boost, 1.0f);
}

TEST(Boosts, HostileTexts) {
  EXPECT_TRUE(traits_of(Tokens("a"), 1).boost.empty()) << "an empty page";
  const auto control = traits_of(Tokens("|||"));
  EXPECT_EQ(control.boost, std::vector<float>(4, 1.0f));
  EXPECT_TRUE(control.runs.empty());
  const auto dashes = traits_of(Tokens("---|----| - | —|...|==="));
  EXPECT_EQ(dashes.boost, std::vector<float>(6, 1.0f));
  EXPECT_TRUE(dashes.runs.empty());
  EXPECT_EQ(dashes.rank_boost, 1.0f);
  const auto bytes = traits_of(Tokens("\xFF|\xC3|\xC3\x28|\x80\x80|\xF4\x90\x80\x80"));
  EXPECT_EQ(bytes.boost, std::vector<float>(5, 1.0f));
  const std::string nul("7\0007", 3);
  EXPECT_EQ(traits_of(Tokens(nul), 0, no_rare()).boost, std::vector<float>(1, kDigit));
  const auto huge = traits_of(Tokens(std::string(1 << 20, 'x') + "|" + std::string(1 << 20, '7')), 0, no_rare());
  EXPECT_EQ(huge.boost, (std::vector<float>{kOwner, kDigit})) << "one code: letters, then digits";
}

/// Text that has everything in it, cut into tokens without regard for characters.
std::string random_text(std::mt19937& random, size_t bytes) {
  static const std::vector<std::string> pieces = {
      " the", " of", " and", " Maria", "Falcon-9427", "\n", ". ", " snake_case", " 3.14", " Москва", "東京", "で",
      "１２", "é", " Theorem 3.", " $$", "\xFF", " NASA", " getValue()", "\xF0\x9F\x98\x80", " long", "word", "another",
      "wordthatgoeson", "---", "_", "-", " ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      // Read from the edge of a page, parts of the first three are words that make the others no names.
      " aaaaaaa", " aaé", "éaaa ", ". Aa ", ". Aaa ", ". Aaaa ", ". Aaaaa "};
  std::string out;
  while (out.size() < bytes) out += pieces[random() % pieces.size()];
  return out;
}

void expect_same(const format::TokenTraits& a, const format::TokenTraits& b) {
  EXPECT_EQ(a.boost, b.boost);
  EXPECT_EQ(a.runs, b.runs);
  EXPECT_EQ(a.rank_boost, b.rank_boost);
}

TEST(Traits, DependOnTheTokensBeforeAndNotOnHowTheyWereRead) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Tokens text = Tokens::cut(random_text(random, 3000), 1 + random() % 4);
    const auto all = text.all();
    std::span<const Token> rest(all);
    Reader reader({});
    size_t read = 0;
    while (!rest.empty()) {
      const size_t size = std::min<size_t>(rest.size(), 1 + random() % 200);
      if (random() % 3 == 0) {
        reader.skip(rest.first(size));
      } else {
        expect_same(reader.page(rest.first(size)),
                    page_traits({}, std::span<const Token>(all).first(read), rest.first(size)));
      }
      read += size;
      rest = rest.subspan(size);
    }
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Traits, OfEveryPageAreSound) {
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    const Tokens text = Tokens::cut(random_text(random, 2000), 1 + random() % 4);
    const int begin = static_cast<int>(random() % static_cast<unsigned>(text.size()));
    ContentOptions options;
    options.most_run_tokens = static_cast<int>(random() % 33);
    options.run_gap_tokens = static_cast<int>(random() % 3);
    const auto traits = traits_of(text, begin, options);
    ASSERT_EQ(traits.boost.size(), static_cast<size_t>(text.size() - begin));
    for (const float boost : traits.boost) EXPECT_TRUE(std::isfinite(boost) && boost >= 1);
    int end = 0;
    for (const format::TokenRun& run : traits.runs) {
      EXPECT_GE(run.begin, end) << "disjoint, ascending";
      EXPECT_LT(run.begin, run.end);
      EXPECT_LE(run.end - run.begin, options.most_run_tokens);
      EXPECT_FALSE(run.asked);
      end = run.end;
    }
    EXPECT_LE(end, text.size() - begin);
  }
}

TEST(Traits, TakeTimeLinearInTheTextBeforeThePage) {
  std::mt19937 random(7);
  const Tokens text = Tokens::cut(random_text(random, size_t{32768} * 4), 4);
  const auto all = text.all();
  const auto milliseconds = [&](size_t tokens) {
    const std::span<const Token> span = std::span<const Token>(all).first(tokens);
    double best = 1e9;
    for (int round = 0; round < 7; ++round) {
      const auto start = std::chrono::steady_clock::now();
      const auto traits = page_traits({}, span.first(tokens - 1024), span.last(1024));
      best =
          std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      EXPECT_EQ(traits.boost.size(), 1024u);
    }
    return best;
  };
  const double short_text = milliseconds(8192), long_text = milliseconds(32768);
  RecordProperty("milliseconds_behind_32k_tokens", std::to_string(long_text));
  EXPECT_LT(long_text, 10 * short_text) << "four times the text; sixteen times would be the square";
}

TEST(Rank, RisesForNumbersFormulasAndDefinitions) {
  const auto rank = [](const std::string& text, int begin = 0) { return traits_of(Tokens(text), begin).rank_boost; };
  EXPECT_EQ(rank("| plain| words| here|, and one| $ sign|, a| \\ n|."), 1.0f);
  EXPECT_EQ(rank(" 1| 2| 3| 4"), 1.5f);
  std::string sparse = " 7";
  for (int i = 0; i < 40; ++i) sparse += "| word";
  EXPECT_EQ(rank(sparse), 1.0f) << "one number in 41 tokens";
  for (const char* formal :
       {" where| $$|x|$$| holds", " let| \\|frac|{a}|{b}| be", " so| ∀| x| ∈| X| ∃| y", " a| :=| b", " f| ≔| g",
        "\n|Theorem| 3|.1|.| Every", "## |Definition| 2|:| A", "|Определение| 4|. Группа", "\n定|理|3|：群"}) {
    std::string padded = formal;
    for (int i = 0; i < 60; ++i) padded += "| word";
    EXPECT_EQ(rank(padded), 1.5f) << formal;
  }
  for (const char* prose : {"\nOn| 12|. May", " see| Theorem| 3| again", " a| −| b", " C:|\\path|\\file", " x| =| y"}) {
    std::string padded = prose;
    for (int i = 0; i < 60; ++i) padded += "| word";
    EXPECT_EQ(rank(padded), 1.0f) << prose;
  }
  std::string before = "$$|x|$$";
  for (int i = 0; i < 60; ++i) before += "| word";
  EXPECT_EQ(rank(before, 3), 1.0f) << "a formula before the page";
}

}  // namespace
}  // namespace varve::content
