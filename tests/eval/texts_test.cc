#include "eval/texts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "eval/tasks/support.h"
#include "support/temp_dir.h"

namespace varve::eval {
namespace {

TEST(Texts, NamesAndProse) {
  const std::vector<std::string> all = Texts::names(), prose = Texts::names(true);
  for (const char* key : {"jargon", "bible-kjv", "debian-reference"}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), key), 1) << key;
    EXPECT_EQ(std::count(prose.begin(), prose.end(), key), 1) << key;
  }
  for (const char* key : {"sqlite3", "iso-3166-2", "unicode-data", "pydecimal"}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), key), 1) << key;
    EXPECT_EQ(std::count(prose.begin(), prose.end(), key), 0) << key;
  }
}

TEST(Texts, UnknownMissingAndDamagedAreToldApart) {
  const varve::testing::TempDir directory;
  const Texts texts(directory.file("texts"));
  EXPECT_EQ(texts.load("bible").status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(texts.load("bible").status().message().find("bible-kjv"), std::string::npos);
  EXPECT_EQ(texts.load("jargon").status().code(), StatusCode::kNotFound);
  EXPECT_NE(texts.load("jargon").status().message().find("varve pull jargon"), std::string::npos);
  std::filesystem::create_directories(directory.file("texts"));
  std::ofstream(directory.file("texts/jargon.txt")) << "something else";
  EXPECT_EQ(texts.load("jargon").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(texts.slice("jargon", 1, testing::count_pieces, 10).status().code(), StatusCode::kCorrupt);
}

TEST(Slice, BeginsAtALineAndKeepsTheTokens) {
  const Document document = testing::made_document("slices", 1500);
  std::set<std::string> different;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto part = slice(document, seed, testing::count_pieces, 700);
    ASSERT_TRUE(part.ok()) << part.status().message();
    EXPECT_LE(testing::count_pieces(*part), 700);
    EXPECT_GE(testing::count_pieces(*part), 650);
    const size_t at = document.text.find(*part);
    ASSERT_NE(at, std::string::npos);
    EXPECT_TRUE(at == 0 || document.text[at - 1] == '\n');
    EXPECT_EQ(*part, *slice(document, seed, testing::count_pieces, 700));
    different.insert(*part);
  }
  EXPECT_GT(different.size(), 15u);
}

TEST(Slice, WholeTextAndTooMuch) {
  const Document document{"lines", "one two\nthree four\nfive\n"};
  EXPECT_EQ(*slice(document, 3, testing::count_pieces, 8), document.text);  // a line end is a token too
  const auto more = slice(document, 3, testing::count_pieces, 9);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(more.status().message().find("8 tokens, fewer than the 9"), std::string::npos) << more.status().message();
  EXPECT_FALSE(slice({"empty", ""}, 1, testing::count_pieces, 1).ok());
  EXPECT_EQ(slice(document, 3, testing::count_pieces, 0).status().code(), StatusCode::kInvalidArgument);
  const auto line = slice({"long", std::string(500, '.')}, 1, testing::count_pieces, 100);
  ASSERT_FALSE(line.ok());
  EXPECT_NE(line.status().message().find("line 1 alone has 500 tokens"), std::string::npos) << line.status().message();
}

}  // namespace
}  // namespace varve::eval
