#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/trace/picture.h"
#include "cli/trace/reader.h"
#include "cli/trace/summary.h"
#include "cli/trace/svg.h"
#include "cli/trace/terminal_picture.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;
using cache::Tier;

const std::string kHeader =
    R"({"varve_trace":1,"model":"m","profile":"p","page_tokens":128,"recent_tokens":256,"tiers":{"recent":"int8","stale1":"k4v3"}})"
    "\n";

/// An event; `more` adds keys or repeats one (the last one counts).
std::string event(int64_t step, uint64_t session, uint64_t page, int64_t start, const std::string& from,
                  const std::string& to, const std::string& more = "") {
  return R"({"step":)" + std::to_string(step) + R"(,"session":)" + std::to_string(session) + R"(,"page":)" +
         std::to_string(page) + R"(,"page_start":)" + std::to_string(start) + R"(,"from":")" + from + R"(","to":")" +
         to + R"(","outcome":"published","from_bytes":0,"to_bytes":)" + (to == "stale1" ? "30" : "100") + more + "}\n";
}

std::string refusal(int64_t step, const std::string& why) {
  return event(step, 1, 7, 0, "recent", "stale1", R"(,"outcome":"refused","why":")" + why + "\"");
}

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "varve-trace-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = (directory_ / "t.jsonl").string();
  }
  void TearDown() override { fs::remove_all(directory_); }

  Result<Picture> read(const std::string& content, std::optional<uint64_t> session = std::nullopt) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
    return read_picture(path_, session);
  }
  /// The message of a trace that must be refused, without the path before it.
  std::string refused(const std::string& content) {
    const auto picture = read(content);
    EXPECT_FALSE(picture.ok()) << content.substr(0, 200);
    if (picture.ok()) return "";
    EXPECT_EQ(picture.status().code(), StatusCode::kCorrupt);
    EXPECT_TRUE(picture.status().message().starts_with(path_)) << picture.status().message();
    return picture.status().message().substr(path_.size());
  }

  fs::path directory_;
  std::string path_;
};

/// The rows of a panel, a letter a cell.
std::vector<std::string> letters(const Panel& panel) {
  std::vector<std::string> rows(panel.rows);
  for (size_t r = 0; r < panel.rows; ++r) {
    for (size_t c = 0; c < panel.columns; ++c) rows[r] += tier_letter(commonest(panel.cell(r, c)));
  }
  return rows;
}

using Rows = std::vector<std::string>;

TEST_F(Trace, HeaderIsRead) {
  std::ofstream(path_) << kHeader;
  const auto reader = TraceReader::open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const TraceHeader& header = reader->header();
  EXPECT_TRUE(header.present);
  EXPECT_EQ(header.model, "m");
  EXPECT_EQ(header.profile, "p");
  EXPECT_EQ(header.page_tokens, 128);
  EXPECT_EQ(header.recent_tokens, 256);
  ASSERT_EQ(header.tiers.size(), 2u);
  EXPECT_EQ(header.tiers[1], (std::pair<std::string, std::string>("stale1", "k4v3")));
}

TEST_F(Trace, EveryKeyOfAnEventIsRead) {
  TraceEvent e;
  const auto error = parse_trace_line(
      R"({"step":12,"session":18446744073709551615,"page":7,"page_start":128,"window":512,"from":"stale1","to":"anchor",)"
      R"("why":"score","how":"restore","outcome":"abandoned","score":0.5,"from_bytes":3,"to_bytes":4,"us":1.25})",
      &e);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(e.step, 12);
  EXPECT_EQ(e.session, UINT64_MAX);
  EXPECT_EQ(e.page, 7u);
  EXPECT_EQ(e.page_start, 128);
  EXPECT_EQ(e.window, 512);
  EXPECT_EQ(e.from, Tier::kStale1);
  EXPECT_EQ(e.to, Tier::kAnchor);
  EXPECT_EQ(e.why, "score");
  EXPECT_EQ(e.how, "restore");
  EXPECT_EQ(e.outcome, TraceOutcome::kAbandoned);
  EXPECT_EQ(e.score, 0.5);
  EXPECT_EQ(e.from_bytes, 3u);
  EXPECT_EQ(e.to_bytes, 4u);
  EXPECT_EQ(e.microseconds, 1.25);
}

TEST_F(Trace, UnknownKeysAreIgnoredWhateverTheyHold) {
  const auto picture =
      read(kHeader + event(1, 1, 7, 0, "", "recent", R"(,"new":{"step":-1,"a":[1,"x",null,{"to":9}]},"other":1e999)") +
           event(2, 1, 7, 0, "recent", "stale1", R"(,"score":null)"));
  // A number that no double holds is no JSON that can be read, under any key.
  EXPECT_FALSE(picture.ok());
  EXPECT_NE(picture.status().message().find("line 2: the number 1e999 is too large"), std::string::npos)
      << picture.status().message();
  const auto other = read(kHeader + event(1, 1, 7, 0, "", "recent", R"(,"new":{"step":-1,"a":[1,"x",null,{"to":9}]})") +
                          event(2, 1, 7, 0, "recent", "stale1", R"(,"score":null)"));
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(letters(other->panels[0]), (Rows{"R1"}));
}

TEST_F(Trace, BadValuesNameLineKeyAndValue) {
  const auto line = [&](const std::string& more) {
    return refused(kHeader + event(1, 1, 7, 0, "", "recent") + event(2, 1, 7, 0, "recent", "stale1", more));
  };
  EXPECT_EQ(line(R"(,"step":-1)"), ": line 3: step is -1; it must be a whole number from 0 to 1099511627776");
  EXPECT_EQ(line(R"(,"step":1099511627777)"),
            ": line 3: step is 1099511627777; it must be a whole number from 0 to 1099511627776");
  EXPECT_EQ(line(R"(,"step":1e3)"), ": line 3: step is 1e3; it must be a whole number from 0 to 1099511627776");
  EXPECT_EQ(line(R"(,"session":99999999999999999999)"),
            ": line 3: session is 99999999999999999999; it must be a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(line(R"(,"page_start":2147483648)"),
            ": line 3: page_start is 2147483648; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(line(R"(,"window":true)"), ": line 3: window is true; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(line(R"(,"page":"x")"),
            ": line 3: page is \"x\"; it must be a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(line(R"(,"to_bytes":[1])"),
            ": line 3: to_bytes is [...]; it must be a whole number from 0 to 1099511627776");
  EXPECT_EQ(line(R"(,"from_bytes":null)"),
            ": line 3: from_bytes is null; it must be a whole number from 0 to 1099511627776");
  EXPECT_EQ(line(R"(,"us":-0.5)"), ": line 3: us is -0.5; it must be a number from 0 to 1e15");
  EXPECT_EQ(line(R"(,"us":1e999)"), ": line 3: us is 1e999; it must be a number from 0 to 1e15");
  EXPECT_EQ(line(R"(,"score":"high")"), ": line 3: score is \"high\"; it must be a number");
  EXPECT_EQ(line(R"(,"why":5)"), ": line 3: why is 5; it must be a text");
  EXPECT_EQ(line(R"(,"to":"stale9")"),
            ": line 3: to is \"stale9\" (known: recent, anchor, stale1, stale2, and \"\" for nowhere)");
  EXPECT_EQ(line(R"(,"from":{})"), ": line 3: from is {...}; it must be a text");
  EXPECT_EQ(line(R"(,"outcome":"done")"), ": line 3: outcome is \"done\" (known: published, abandoned, refused)");
  EXPECT_EQ(line(R"(,"why":")" + std::string(65, 'w') + "\""), ": line 3: why has 65 bytes; at most 64 are read");
}

TEST_F(Trace, MissingKeysAreNamed) {
  EXPECT_EQ(refused(kHeader + R"({"step":1,"page_start":0,"from":"","outcome":"published"})" + "\n"),
            ": line 2: no \"to\"");
  EXPECT_EQ(refused("{}\n"), ": line 1: no \"step\"");
}

TEST_F(Trace, LinesThatAreNoEventsAreRefusedByNumber) {
  const std::string good = event(1, 1, 7, 0, "", "recent");
  EXPECT_EQ(refused(kHeader + good + "hello\n" + good), ": line 3: not JSON (byte 1)");
  EXPECT_EQ(refused(kHeader + good + "{\"step\":1\n" + good), ": line 3: not JSON (byte 10)");
  EXPECT_EQ(refused(kHeader + "[1]\n"), ": line 2: not a JSON object");
  EXPECT_EQ(refused(kHeader + "17\n"), ": line 2: not a JSON object");
  EXPECT_EQ(refused(kHeader + "null\n"), ": line 2: not a JSON object");
  EXPECT_EQ(refused(kHeader + good.substr(0, good.size() - 1) + good),
            ": line 2: not JSON (byte " + std::to_string(good.size()) + ")");
  EXPECT_EQ(refused(kHeader + good + kHeader), ": line 3: a second header; a trace holds one run");
  EXPECT_EQ(refused(kHeader + std::string(kMaxTraceLineBytes + 1, ' ') + "\n"), ": line 2: longer than 65536 bytes");
  EXPECT_EQ(refused(kHeader + std::string(30000, '[') + "\n"), ": line 2: not a JSON object");
  EXPECT_EQ(refused(std::string("{\0}\n", 4)), ": line 1: not JSON (byte 2)");
}

TEST_F(Trace, BadHeadersNameKeyAndValue) {
  EXPECT_EQ(refused("{\"varve_trace\":2}\n"),
            ": line 1: varve_trace is 2; it must be 1, the format that this build reads");
  EXPECT_EQ(refused("{\"varve_trace\":1,\"page_tokens\":0}\n"),
            ": line 1: page_tokens is 0; it must be a whole number from 1 to 2147483647");
  EXPECT_EQ(refused("{\"varve_trace\":1,\"model\":[]}\n"),
            ": line 1: model is []; it must be a text of at most 256 bytes");
  EXPECT_EQ(refused("{\"varve_trace\":1,\"tiers\":{\"warm\":\"int8\"}}\n"),
            ": line 1: tiers has \"warm\" (known: recent, anchor, stale1, stale2, and \"\" for nowhere)");
}

TEST_F(Trace, ALastLineCutInTheMiddleIsANote) {
  const std::string whole = kHeader + event(1, 1, 7, 0, "", "recent") + event(2, 1, 7, 0, "recent", "stale1");
  const size_t last = event(2, 1, 7, 0, "recent", "stale1").size();
  // Cut anywhere in the last line but at its start, before its closing brace.
  for (size_t cut = 2; cut < last; ++cut) {
    const auto picture = read(whole.substr(0, whole.size() - cut));
    ASSERT_TRUE(picture.ok()) << cut << ": " << picture.status().message();
    EXPECT_EQ(picture->survey.events, 1u);
    ASSERT_EQ(picture->notes(),
              Rows{"line 3, the last one, ends in the middle and is left out: its writer was stopped"})
        << cut;
  }
  // Without its line break alone it is whole.
  const auto picture = read(whole.substr(0, whole.size() - 1));
  ASSERT_TRUE(picture.ok());
  EXPECT_EQ(picture->survey.events, 2u);
  EXPECT_TRUE(picture->notes().empty());
  // A file of nothing but such a line need not be a trace.
  EXPECT_EQ(refused("{\"step\":1"), ": line 1: not JSON (byte 10)");
  EXPECT_EQ(refused(kHeader + event(1, 1, 7, 0, "", "recent") + "hello"), ": line 3: not JSON (byte 1)");
}

TEST_F(Trace, FilesThatAreNoTraces) {
  EXPECT_EQ(refused(""), " is empty: it holds no trace");
  EXPECT_EQ(refused("\n \n\r\n"), " is empty: it holds no trace");
  EXPECT_EQ(read_picture(path_ + ".no", std::nullopt).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_picture(directory_.string(), std::nullopt).status().code(), StatusCode::kUnsupported);
}

TEST_F(Trace, BlankLinesAndCarriageReturnsAreSkipped) {
  std::string content = kHeader + "\n" + event(1, 1, 7, 0, "", "recent");
  content.back() = '\r';
  const auto picture = read(content + "\n  \n");
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(picture->survey.events, 1u);
  EXPECT_TRUE(picture->notes().empty());
}

TEST_F(Trace, WithoutAHeaderPageTokensAreInferred) {
  const auto picture =
      read(event(1, 1, 7, 0, "", "recent") + event(1, 1, 8, 384, "", "recent") + event(1, 1, 9, 640, "", "recent"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(picture->survey.page_tokens, 128);
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"R", ".", ".", "R", ".", "R"}));
  EXPECT_EQ(picture->notes(), Rows{"the file has no header line; pages of 128 tokens follow from the page starts"});
}

TEST_F(Trace, APageIsDrawnFromItsSealToItsRelease) {
  const auto picture =
      read(kHeader + event(10, 1, 7, 0, "", "recent") + event(11, 1, 8, 128, "", "recent") +
           event(12, 1, 7, 0, "recent", "stale1") + event(14, 1, 7, 0, "stale1", "anchor") +
           event(15, 1, 8, 128, "recent", "", R"(,"why":"truncated")") + event(17, 1, 9, 128, "", "recent"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  ASSERT_EQ(picture->panels.size(), 1u);
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"RR11AAAA", ".RRRR..R"}));
  ASSERT_EQ(picture->bytes.size(), 8u);
  EXPECT_EQ(picture->bytes[0], (TierAmounts{100, 0, 0, 0}));
  EXPECT_EQ(picture->bytes[1], (TierAmounts{200, 0, 0, 0}));
  EXPECT_EQ(picture->bytes[2], (TierAmounts{100, 0, 30, 0}));
  EXPECT_EQ(picture->bytes[4], (TierAmounts{100, 100, 0, 0}));
  EXPECT_EQ(picture->bytes[5], (TierAmounts{0, 100, 0, 0}));
  EXPECT_EQ(picture->bytes[7], (TierAmounts{100, 100, 0, 0}));
  EXPECT_EQ(picture->survey.promotions.published, 1u);
  EXPECT_EQ(picture->survey.promotions.bytes, 100u);
  EXPECT_TRUE(picture->notes().empty());
}

TEST_F(Trace, RefusedAndAbandonedMovesChangeNothing) {
  const auto picture =
      read(kHeader + event(1, 1, 7, 0, "", "recent") + refusal(2, "no_room") + refusal(3, "no_room") +
           refusal(3, "rejected") + event(4, 1, 7, 0, "recent", "stale1", R"(,"outcome":"abandoned","why":"age")"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"RRRR"}));
  EXPECT_EQ(picture->survey.refused, (std::map<std::string, uint64_t>{{"no_room", 2}, {"rejected", 1}}));
  const auto age = picture->survey.moves.find(MoveKey{Tier::kRecent, Tier::kStale1, "age", ""});
  ASSERT_NE(age, picture->survey.moves.end());
  EXPECT_EQ(age->second.abandoned, 1u);
  EXPECT_EQ(age->second.bytes, 0u);
}

TEST_F(Trace, ASharedPageMovesForAllWhoHoldItAndCountsOnce) {
  const std::string content = kHeader + event(1, 1, 7, 0, "", "recent") +
                              event(2, 2, 7, 0, "", "recent", R"(,"why":"hit","how":"reference")") +
                              event(3, 1, 7, 0, "recent", "stale1") +
                              event(5, 1, 7, 0, "stale1", "", R"(,"why":"finished")") + event(6, 3, 8, 0, "", "recent");
  const auto picture = read(content);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  ASSERT_EQ(picture->panels.size(), 3u);
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"RR11.."}));
  EXPECT_EQ(letters(picture->panels[1]), (Rows{".R1111"}));
  EXPECT_EQ(letters(picture->panels[2]), (Rows{".....R"}));
  EXPECT_EQ(picture->bytes[1], (TierAmounts{100, 0, 0, 0}));
  EXPECT_EQ(picture->bytes[4], (TierAmounts{0, 0, 30, 0}));
  EXPECT_EQ(picture->bytes[5], (TierAmounts{100, 0, 30, 0}));
  // A hit writes nothing.
  EXPECT_EQ(picture->survey.moves.at(MoveKey{std::nullopt, Tier::kRecent, "hit", "reference"}).bytes, 0u);
  // One session alone still sees the moves that another one's events tell of, to the end of the trace.
  const auto second = read(content, 2);
  ASSERT_TRUE(second.ok()) << second.status().message();
  ASSERT_EQ(second->panels.size(), 1u);
  EXPECT_EQ(second->survey.events, 1u);
  EXPECT_EQ(letters(second->panels[0]), (Rows{"R1111"}));
  EXPECT_EQ(second->bytes[4], (TierAmounts{0, 0, 30, 0}));
  // A finished one ends where it finished.
  const auto first = read(content, 1);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(letters(first->panels[0]), (Rows{"RR11."}));
  const auto none = read(content, 9);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(none.status().message().ends_with("has no session 9 (it has 1, 2, 3)")) << none.status().message();
}

TEST_F(Trace, WindowClassesHaveTheirOwnPanels) {
  const auto picture =
      read(kHeader + event(1, 1, 7, 0, "", "recent") + event(1, 1, 7, 128, "", "stale1", R"(,"window":512)"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  ASSERT_EQ(picture->panels.size(), 2u);
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"R"}));
  EXPECT_EQ(letters(picture->panels[1]), (Rows{".", "1"}));
  EXPECT_EQ(picture->panels[1].key.window, 512);
}

TEST_F(Trace, PagesWithoutIdsAreToldApartByPosition) {
  const auto line = [](int step, int start, const char* from, const char* to) {
    return R"({"step":)" + std::to_string(step) + R"(,"page_start":)" + std::to_string(start) +
           R"(,"window":0,"from":")" + from + R"(","to":")" + to +
           R"(","why":"age","outcome":"published","from_bytes":100,"to_bytes":30,"us":1})" + "\n";
  };
  const auto picture =
      read(line(1, 0, "recent", "stale1") + line(2, 64, "recent", "stale1") + line(3, 0, "stale1", "anchor"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"11A", ".11"}));
  ASSERT_EQ(picture->notes().size(), 2u);
  EXPECT_EQ(picture->notes()[1], "2 pages are first seen in a move between tiers; what came before is not drawn");
}

TEST_F(Trace, GapsAndBackwardStepsAreNoted) {
  const auto picture = read(kHeader + event(5, 1, 7, 0, "", "recent") + event(3, 1, 8, 128, "", "recent") +
                            event(6, 1, 7, 0, "stale1", "anchor"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(letters(picture->panels[0]), (Rows{"RA", "RR"}));
  EXPECT_EQ(picture->notes(), (Rows{"1 move leaves another tier than the page was in: the trace has gaps",
                                    "1 event is behind the step of the one before; drawn at that step"}));
}

TEST_F(Trace, TheGridIsBoundedAndExact) {
  // One page, stale from step 1000 on, over steps 0 to 99999; another one far away.
  const auto picture = read(kHeader + event(0, 1, 7, 0, "", "recent") + event(1000, 1, 7, 0, "recent", "stale1") +
                            event(99999, 1, 8, int64_t{128} * 99999, "", "recent"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  const Panel& panel = picture->panels[0];
  EXPECT_EQ(picture->steps_per_column, 209);  // 100000 / 480, rounded up
  EXPECT_EQ(panel.columns, 479u);
  EXPECT_EQ(panel.pages_per_row, 782);  // 100000 / 128, rounded up
  EXPECT_EQ(panel.rows, 128u);
  EXPECT_EQ(panel.cell(0, 3), (TierAmounts{209, 0, 0, 0}));
  EXPECT_EQ(panel.cell(0, 4), (TierAmounts{1000 - 4 * 209, 0, 5 * 209 - 1000, 0}));
  EXPECT_EQ(panel.cell(0, 478), (TierAmounts{0, 0, 100000 - 478 * 209, 0}));
  EXPECT_EQ(panel.cell(127, 478), (TierAmounts{1, 0, 0, 0}));
  EXPECT_EQ(picture->column_end(478), 99999);

  const Panel coarse = panel.coarsened(32, 100);
  EXPECT_EQ(coarse.rows, 4u);
  EXPECT_EQ(coarse.columns, 5u);
  EXPECT_EQ(coarse.steps_per_column, 20900);
  EXPECT_EQ(coarse.cell(0, 0), (TierAmounts{1000, 0, 19900, 0}));
  uint64_t all = 0;
  for (const TierAmounts& cell : coarse.cells) {
    for (const uint64_t amount : cell) all += amount;
  }
  EXPECT_EQ(all, 100001u);
}

TEST_F(Trace, LargestNumbersDoNotOverflow) {
  const std::string most = std::to_string(kMaxTraceStep);
  const auto picture = read(kHeader + event(0, 1, 7, 0, "", "recent", R"(,"to_bytes":1099511627776)") +
                            event(0, 1, 8, int64_t{kMaxTracePosition}, "", "stale2",
                                  R"(,"to_bytes":1099511627776,"us":1e15,"step":)" + most));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(picture->panels[0].rows, 128u);
  EXPECT_LE(picture->columns, 480u);
  uint64_t recent = 0;
  for (const TierAmounts& cell : picture->panels[0].cells) recent += cell[0];
  EXPECT_EQ(recent, kMaxTraceStep + 1);
}

TEST_F(Trace, PanelsAndMarksAreBounded) {
  std::string content = kHeader;
  for (int s = 1; s <= 20; ++s) content += event(s, s, s, 0, "", "recent");
  for (int i = 0; i < 600; ++i) {
    content += event(30 + i, 1, 1, 0, i % 2 == 0 ? "recent" : "stale1", i % 2 == 0 ? "stale1" : "recent");
  }
  for (int i = 0; i < 600; ++i) {
    content += event(700, 1, 1, 0, "recent", "anchor", R"(,"outcome":"refused","why":"w)" + std::to_string(i) + "\"");
  }
  for (int i = 0; i < 600; ++i) content += event(700 + i, 1, 1, 0, "stale1", "anchor");
  const auto picture = read(content);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_EQ(picture->panels.size(), kMostPanels);
  EXPECT_EQ(picture->survey.panels.size(), 20u);
  EXPECT_EQ(picture->marks.size(), kMostMarks);
  EXPECT_EQ(picture->unmarked, 400u);
  EXPECT_EQ(picture->bytes.back()[0], 1900u);                   // of sessions that are not drawn too
  EXPECT_LE(picture->survey.moves.size(), kMostMoveKinds + 3);  // and one (other) for each pair of tiers
  EXPECT_EQ(picture->survey.refused.size(), kMostMoveKinds + 1);
  EXPECT_EQ(picture->survey.refused.at(kOtherWord), 600 - kMostMoveKinds);
  EXPECT_EQ(picture->notes()[0], "the first 12 of 20 panels are drawn, all are counted; --session N draws another");
}

TEST_F(Trace, AHeaderAloneIsATraceOfNothing) {
  const auto picture = read(kHeader);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  EXPECT_NE(draw_terminal(*picture, {}).find("No page moved."), std::string::npos);
  EXPECT_NE(draw_svg(*picture).find("No page moved."), std::string::npos);
  EXPECT_EQ(trace_json(*picture)["events"], 0);
  EXPECT_TRUE(trace_json(*picture)["slowest"].is_null());
}

TEST(Tiers, TheCommonestIsShownTheCoarserOfTwo) {
  EXPECT_EQ(commonest({0, 0, 0, 0}), std::nullopt);
  EXPECT_EQ(commonest({5, 0, 4, 0}), Tier::kRecent);
  EXPECT_EQ(commonest({5, 0, 5, 0}), Tier::kStale1);
  EXPECT_EQ(commonest({0, 1, 0, 1}), Tier::kStale2);
}

TEST(Tiers, APromotionGoesFromAStaleTierToAFinerOne) {
  const auto promotes = [](Place from, Place to) {
    TraceEvent e;
    e.from = from;
    e.to = to;
    return is_promotion(e);
  };
  EXPECT_TRUE(promotes(Tier::kStale1, Tier::kAnchor));
  EXPECT_TRUE(promotes(Tier::kStale2, Tier::kStale1));
  EXPECT_FALSE(promotes(Tier::kRecent, Tier::kAnchor));
  EXPECT_FALSE(promotes(Tier::kAnchor, Tier::kRecent));
  EXPECT_FALSE(promotes(Tier::kRecent, Tier::kStale1));
  EXPECT_FALSE(promotes(std::nullopt, Tier::kRecent));
  EXPECT_FALSE(promotes(Tier::kStale1, std::nullopt));
}

TEST_F(Trace, TheTerminalPictureFitsTheCanvas) {
  std::string content = kHeader;
  for (int i = 0; i < 1000; ++i)
    content += event(i, 1 + i % 3, i + 1, int64_t{128} * i, "", i % 2 ? "recent" : "stale1");
  const auto picture = read(content);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  for (const int columns : {20, 33, 80, 100, 250}) {
    const std::string text = draw_terminal(*picture, {.columns = columns, .lines = 40});
    // Panels: everything between the heading and the legend.
    const size_t begin = text.find("session 1:"), end = text.find("R recent");
    ASSERT_NE(end, std::string::npos);
    std::istringstream lines(text.substr(begin, end - begin));
    size_t rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) {
      if (!line.starts_with("session")) {
        EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
      }
    }
    EXPECT_LE(rows, 40u);
    EXPECT_GE(rows, 24u);
  }
}

TEST_F(Trace, TheTerminalPictureHasCellsTablesAndCosts) {
  const auto picture =
      read(kHeader + event(1, 1, 7, 0, "", "recent", R"(,"why":"sealed","how":"append")") +
           event(3, 1, 7, 0, "recent", "stale1", R"(,"why":"age","how":"convert","us":20)") +
           event(5, 1, 7, 0, "stale1", "anchor", R"(,"why":"score","how":"restore","score":0.25,"us":1500)") +
           refusal(6, "no_room"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  const std::string text = draw_terminal(*picture, {});
  for (const char* part :
       {"m, profile p (recent int8, stale1 k4v3)", "session 1: a column is 1 step, a row 1 page\n   0  RR11AA\nstep  1",
        "  recent  stale1  age      convert          1          0        0     30 B  20.0 us\n",
        "     5        1       -         0  stale1  anchor  score  restore   0.25    100 B  1500 us\n",
        "promotions: 1, 100 B written\n",
        "slowest: 1500 us at step 5, session 1, position 0: stale1 to anchor (score, restore)\n",
        "refused: no_room 1\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const std::string colours = draw_terminal(*picture, {.colour = true});
  EXPECT_NE(colours.find("\x1b[32mRR\x1b[36m11\x1b[1;33mAA\x1b[0m\n"), std::string::npos);
}

TEST_F(Trace, TextFromTheFileCannotSteerTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n\x7f"), "a [31mb  ");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m \xc3\xa9"),
            " 31m \xc3\xa9");
  const auto picture = read(R"({"varve_trace":1,"model":"m\u001b[2J","profile":"\u009b2J"})"
                            "\n" +
                            event(1, 1, 7, 0, "", "recent", R"(,"why":"\u001b[2J","how":"a\nb","us":1)"));
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  const std::string text = draw_terminal(*picture, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  EXPECT_NE(text.find("a b"), std::string::npos);
}

TEST_F(Trace, SvgEscapesTextAndIsDeterministic) {
  EXPECT_EQ(escape_xml("<a b=\"c\">'&"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
  EXPECT_EQ(escape_xml(std::string("\x01\n\xff\xc3\xa9\xef\xbf\xbf\xed\xa0\x80", 11)), "  ?\xc3\xa9  ");
  EXPECT_EQ(escape_xml("\xf0\x9f\x98\x80\xc3"), "\xf0\x9f\x98\x80?");
  EXPECT_EQ(escape_xml("\xc0\xbc\xe0\x80\xbc"), "?????");  // overlong '<'
  const std::string content = R"({"varve_trace":1,"model":"<script>alert(1)</script>","tiers":{"recent":"\"><b>"}})"
                              "\n" +
                              event(1, 1, 7, 0, "", "stale1") +
                              event(2, 1, 7, 0, "stale1", "anchor", R"(,"why":"</title><script>","us":1)");
  const auto picture = read(content);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  for (const std::string& text : {draw_svg(*picture), draw_html(*picture)}) {
    EXPECT_EQ(text.find("<script"), std::string::npos);
    EXPECT_EQ(text.find("<b>"), std::string::npos);
    EXPECT_NE(text.find("&lt;script&gt;"), std::string::npos);
  }
  const auto again = read(content);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(draw_svg(*picture), draw_svg(*again));
  EXPECT_EQ(draw_html(*picture), draw_html(*again));
}

}  // namespace
}  // namespace varve::cli
