#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "cli/report.h"

namespace varve::cli {
namespace {

TEST(Terminal, BytesNeverShowFourDigitsBeforeThePoint) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(98362432), "93.8 MiB");
  EXPECT_EQ(format_bytes(1117320768), "1.0 GiB");
}

TEST(Terminal, Durations) {
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(8.4), "8 s");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3725), "1:02:05");
}

TEST(Terminal, ProgressShowsShareRateAndTimeLeft) {
  EXPECT_EQ(render_progress("m", 50, 100, 0, 5, Unit::kItems, 79),
            "m  [############            ]   50%  50 / 100  10.0/s  5 s left");
}

TEST(Terminal, ResumedWorkDoesNotCountIntoTheRate) {
  EXPECT_EQ(render_progress("m", 60, 100, 50, 5, Unit::kItems, 79),
            "m  [##############          ]   60%  60 / 100  2.0/s  20 s left");
}

TEST(Terminal, NoRateBeforeThereIsTimeToMeasure) {
  EXPECT_EQ(render_progress("m", 10, 100, 0, 0.1, Unit::kTokens, 79),
            "m  [##                      ]   10%  10 tok / 100 tok");
}

TEST(Terminal, UnknownEndHasNoBar) {
  EXPECT_EQ(render_progress("m", 2048, 0, 0, 2, Unit::kBytes, 79), "m  2.0 KiB  1.0 KiB/s");
}

TEST(Terminal, MoreThanTheTotalIsShownAsTheTotal) {
  EXPECT_EQ(render_progress("m", 120, 100, 0, 0, Unit::kItems, 30), "m  [########]  100%  100 / 100");
}

TEST(Terminal, LineNeverExceedsTheColumns) {
  for (int columns = 1; columns < 100; ++columns)
    EXPECT_LE(render_progress("qwen2.5-coder-1.5b", 1 << 29, 1 << 30, 0, 9, Unit::kBytes, columns).size(),
              static_cast<size_t>(columns));
}

TEST(Report, MessageBecomesOnePrintableLine) {
  EXPECT_EQ(one_line("a\nb\r\n\tc\x1b[31m \n"), "a b c [31m");
  EXPECT_EQ(one_line(""), "");
}

TEST(Report, EveryStatusHasItsExitCode) {
  EXPECT_EQ(exit_code(StatusCode::kOk), 0);
  EXPECT_EQ(exit_code(StatusCode::kInternal), 1);
  EXPECT_EQ(exit_code(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(StatusCode::kNotFound), 3);
  EXPECT_EQ(exit_code(StatusCode::kUnsupported), 3);
  EXPECT_EQ(exit_code(StatusCode::kCorrupt), 3);
  EXPECT_EQ(exit_code(StatusCode::kResourceExhausted), 4);
  EXPECT_EQ(exit_code(StatusCode::kContextOverflow), 4);
  EXPECT_EQ(exit_code(StatusCode::kIoError), 5);
  EXPECT_EQ(exit_code(StatusCode::kCancelled), 130);
}

}  // namespace
}  // namespace varve::cli
