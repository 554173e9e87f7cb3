#include "eval/tasks/entries.h"

#include <gtest/gtest.h>

namespace varve::eval {
namespace {

TEST(Entries, OfFourKindsOfText) {
  const std::string text =
      "    {\n      \"code\": \"AD-02\",\n      \"name\": \"Canillo\",\n      \"type\": \"Parish\"\n    },\n"
      "#define SQLITE_OK           0   /* Successful result */\n"
      "#define WITH_PARAMETERS(x) x\n#define EMPTY\n#define LONG \\\n"
      "0041;LATIN CAPITAL LETTER A;Lu;0\n0000;<control>;Cc;0\n"
      "Ge1:1 In the beginning\n1Cor13:4 Charity suffereth long\nAt 10:30 he left\nnote: nothing\n";
  const std::vector<Entry> entries = find_entries(text);
  ASSERT_EQ(entries.size(), 5u);
  const std::pair<const char*, const char*> expected[] = {{"AD-02", "Canillo"},
                                                          {"SQLITE_OK", "0"},
                                                          {"0041", "LATIN CAPITAL LETTER A"},
                                                          {"Ge1:1", "In the beginning"},
                                                          {"1Cor13:4", "Charity suffereth long"}};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(entries[i].name, expected[i].first);
    EXPECT_EQ(entries[i].value, expected[i].second);
    EXPECT_EQ(text.substr(entries[i].offset, entries[i].name.size()), entries[i].name);
  }
}

TEST(Entries, TheFirstOfANameAndNoLongValues) {
  const std::string text = "#define A 1\n#define A 2\n#define B " + std::string(201, 'x') + "\n";
  const std::vector<Entry> entries = find_entries(text);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].value, "1");
  EXPECT_TRUE(find_entries("").empty());
}

TEST(Entries, SingleSpaces) { EXPECT_EQ(single_spaced(" \n a \t b\n\nc "), "a b c"); }

}  // namespace
}  // namespace varve::eval
