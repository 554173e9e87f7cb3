#include "engine/speculation/draft_length.h"

#include <gtest/gtest.h>

namespace varve::engine {
namespace {

TEST(DraftLength, RightDraftsGrowToTheMost) {
  DraftLength length(7, 0.2);
  const int first = length.next();
  EXPECT_GE(first, 1);
  for (int i = 0; i < 20; ++i) length.verified(length.next(), length.next());
  EXPECT_EQ(length.next(), 7);
  EXPECT_GT(length.next(), first);
}

TEST(DraftLength, WrongDraftsStopAndCostLittle) {
  DraftLength length(7, 0.4);
  int rows = 0;
  for (int step = 0; step < 1000; ++step) {
    const int n = length.next();
    rows += n;
    if (n > 0) length.verified(n, 0);
  }
  EXPECT_GT(rows, 10) << "it must go on looking";
  EXPECT_LT(rows, 60) << "a thousand steps";
}

TEST(DraftLength, ATextThatBecomesPredictableIsNoticed) {
  DraftLength length(4, 0.4);
  for (int step = 0; step < 500; ++step) {
    if (const int n = length.next(); n > 0) length.verified(n, 0);
  }
  int steps = 0;
  for (int n = 0; n < 4 && steps < 100; ++steps) {
    n = length.next();
    if (n > 0) length.verified(n, n);
  }
  EXPECT_LE(steps, DraftLength::kLongestPause + 24);
}

TEST(DraftLength, DraftsPayForTheirRowsOrAreNotMade) {
  for (const double cost : {0.1, 0.4, 0.8}) {
    for (const double right : {0.05, 0.3, 0.6, 0.9}) {
      SCOPED_TRACE(::testing::Message() << cost << " " << right);
      DraftLength length(15, cost);
      double tokens = 0, time = 0;
      uint32_t state = 1;
      for (int step = 0; step < 4000; ++step) {
        const int n = length.next();
        int accepted = 0;
        while (accepted < n && ((state = state * 1664525u + 1013904223u) >> 8) < right * (1 << 24)) ++accepted;
        if (n > 0) length.verified(n, accepted);
        tokens += 1 + accepted;
        time += 1 + cost * n;
      }
      EXPECT_GT(tokens / time, right > cost + 0.15 ? 1.03 : 0.93) << "in the model of cost that it is given";
    }
  }
}

TEST(DraftLength, FreeRowsAreAlwaysDrafted) {
  DraftLength length(3, 0);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(length.next(), 3);
    length.verified(3, 0);
  }
}

}  // namespace
}  // namespace varve::engine
