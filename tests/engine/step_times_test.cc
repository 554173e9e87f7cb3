// Probes change no result and account for the step.

#include <gtest/gtest.h>

#include "support/tiny_engine.h"

namespace varve {
namespace {

using testing::TinyEngine;

TEST(StepTimes, ProbesChangeNothingAndCountEverything) {
  const auto model = TinyEngine::load();
  ASSERT_NE(model, nullptr);
  EngineOptions options = TinyEngine::options(TinyEngine::small_minima());
  options.threads = 2;
  options.profile.scoring.on = true;
  const auto plain = TinyEngine::make(model, options), probed = TinyEngine::make(model, options);
  const SessionId a = *plain->start(), b = *probed->start();
  const testing::Tokens text = TinyEngine::tokens(*plain, 300, 1);

  StepTimes times;
  probed->time_steps(&times);
  std::vector<float> x, y;
  for (size_t i = 0; i < text.size();) {
    const size_t n = i == 0 ? 256 : 1;
    const Feed fa{a, {text.data() + i, n}, Logits::kLast}, fb{b, {text.data() + i, n}, Logits::kLast};
    ASSERT_TRUE(plain->step({&fa, 1}, x).ok());
    ASSERT_TRUE(probed->step({&fb, 1}, y).ok());
    ASSERT_EQ(x, y) << "at " << i;
    i += n;
  }
  EXPECT_EQ(times.steps, 45u);
  ASSERT_EQ(times.threads.size(), 2u);
  for (const double part :
       {times.reserve_s, times.plan_s, times.prepare_s, times.start_s, times.weights_s, times.append_s, times.partial_s,
        times.merge_s, times.other_s, times.output_s, times.scores_s, times.settle_s, times.convert_s}) {
    EXPECT_GT(part, 0);
  }
  EXPECT_LE(times.accounted_s(), times.wall_s);
  for (const StepTimes::Thread& thread : times.threads) {
    EXPECT_LE(thread.partial_s, times.partial_s);
    EXPECT_GT(thread.partial_s, 0);
    EXPECT_LE(thread.busy_s(), times.attention_s() + times.reserve_s + times.convert_s);
  }

  // Off again: nothing is counted.
  probed->time_steps(nullptr);
  const StepTimes before = times;
  const Feed fb{b, {text.data(), 1}, Logits::kLast};
  ASSERT_TRUE(probed->step({&fb, 1}, y).ok());
  EXPECT_EQ(times.steps, before.steps);
  EXPECT_EQ(times.wall_s, before.wall_s);
}

}  // namespace
}  // namespace varve
