#include "engine/text_stream.h"

#include <gtest/gtest.h>

namespace varve::engine {
namespace {

TEST(TextStream, HoldsBackHalfACharacter) {
  TextStream s({});
  EXPECT_EQ(s.push("a\xe2"), "a");
  EXPECT_EQ(s.push("\x82"), "");
  EXPECT_EQ(s.push("\xac!"), "\xe2\x82\xac!");
  EXPECT_EQ(s.finish(), "");
}

TEST(TextStream, AStopStringSplitOverPiecesNeverShows) {
  TextStream s({"</end>"});
  EXPECT_EQ(s.push("text</"), "text");
  EXPECT_EQ(s.push("en"), "");
  EXPECT_EQ(s.push("d>more"), "");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.push("never"), "");
  EXPECT_EQ(s.finish(), "");
}

TEST(TextStream, AFalseStartIsReleased) {
  TextStream s({"STOP"});
  EXPECT_EQ(s.push("ST"), "");
  EXPECT_EQ(s.push("ARE"), "STARE");
  EXPECT_EQ(s.push("STO"), "");
  EXPECT_EQ(s.finish(), "STO");
  EXPECT_FALSE(s.stopped());
}

TEST(TextStream, TheEarliestStopStringWins) {
  TextStream s({"bc", "ab"});
  EXPECT_EQ(s.push("xabc"), "x");
  EXPECT_TRUE(s.stopped());
}

TEST(TextStream, MalformedBytesAreReplaced) {
  TextStream s({});
  EXPECT_EQ(s.push("a\xff" "b"), "a\xef\xbf\xbd" "b");
  EXPECT_EQ(s.push("\xe2\x82"), "");
  EXPECT_EQ(s.finish(), "\xef\xbf\xbd");
}

TEST(FindInvalidUtf8, NamesTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("plain \xe2\x82\xac \xf0\x9f\x98\x80"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xc0\x80"), 0u) << "overlong";
  EXPECT_EQ(find_invalid_utf8("x\xed\xa0\x80"), 1u) << "surrogate";
  EXPECT_EQ(find_invalid_utf8("abc\xe2\x82"), 3u) << "cut off";
}

}  // namespace
}  // namespace varve::engine
