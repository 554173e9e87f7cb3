// The lifecycle bench over a small random model: every figure is there and those that must be exact are.

#include "eval/lifecycle.h"

#include <gtest/gtest.h>

#include "support/tiny_engine.h"

namespace varve::eval {
namespace {

using testing::TinyEngine;
using testing::Tokens;

LifecycleOptions small_options() {
  LifecycleOptions o;
  o.profile = TinyEngine::small_minima();
  o.profile.scoring.anchor_tokens = 128;
  o.profile.scoring.least_score = 0.1;
  o.profile.scoring.leave_score = 0.1;
  o.threads = 1;
  o.depth_tokens = 700;
  o.prefix_tokens = 512;
  o.question_tokens = 20;
  o.shift_tokens = 512;
  o.decode_tokens = 80;
  o.rounds = 1;
  return o;
}

TEST(LifecycleBench, MeasuresEveryPart) {
  const auto model = TinyEngine::load();
  const auto engine = TinyEngine::make(model, TinyEngine::options(TinyEngine::small_minima()));
  const Tokens text = TinyEngine::tokens(*engine, 800, 1);
  const auto report = measure_lifecycle(model, text, small_options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(report->scoring.off_ms, 0);
  EXPECT_GT(report->scoring.on_ms, 0);
  EXPECT_GT(report->conversion.tokens_per_s, 0);
  EXPECT_GE(report->conversion.worst_step_ms, report->conversion.decode_step_ms);
  EXPECT_FALSE(report->conversion.over_time.empty());
  EXPECT_GT(report->conversion.over_time.back().stale_pages, 0);
  EXPECT_EQ(report->prefix.cached_tokens, 512);
  ASSERT_EQ(report->paths.size(), 3u);
  for (const char* same : {"fork", "hit"}) {
    for (const PathDivergence& p : report->paths) {
      if (p.path != same) continue;
      EXPECT_EQ(p.cold.max, 0) << same << " reads the same bytes as a cold run that forked";
    }
  }
  ASSERT_EQ(report->shift.size(), 5u);
  EXPECT_EQ(report->shift[0].promotions, 0u);
  EXPECT_EQ(report->shift[0].promoted_at, -1);
  EXPECT_EQ(report->shift[0].refinement_bytes, 0u);
  for (const ShiftArm& arm : report->shift) EXPECT_EQ(arm.kl.size(), 64u) << arm.name;
  EXPECT_EQ(report->shift[3].kl, report->shift[4].kl) << "host and disk restore the same bytes";
  EXPECT_GT(report->shift[4].refinement_bytes, 0u);
}

TEST(LifecycleBench, RefusesWhatItCannotMeasure) {
  const auto model = TinyEngine::load();
  const Tokens text(600, 1);
  EXPECT_EQ(measure_lifecycle(model, text, small_options()).status().code(), StatusCode::kInvalidArgument);
  LifecycleOptions dense = small_options();
  dense.profile = *Profile::named("dense");
  EXPECT_NE(measure_lifecycle(model, text, dense).status().message().find("anchor"), std::string::npos);
  LifecycleOptions young = small_options();
  young.shift_page = 7;
  const Tokens longer(900, 1);
  EXPECT_NE(measure_lifecycle(model, longer, young).status().message().find("page 7"), std::string::npos);
}

}  // namespace
}  // namespace varve::eval
