// The executor over small random models: inputs it must refuse, cached graphs, threads, outputs, allocations.

#include "model/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "allocations.h"
#include "support/compare.h"
#include "support/step_runner.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace varve::model {
namespace {

using testing::StepRunner;
using testing::TinySpec;

std::shared_ptr<Model> tiny(const TinySpec& spec = {}, const LoadOptions& options = {}) {
  const testing::TempDir directory;
  const std::string path = directory.file("tiny.gguf");
  EXPECT_TRUE(testing::write_tiny_model(path, spec).ok());
  auto model = Model::load(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

std::unique_ptr<Executor> executor_for(const std::shared_ptr<Model>& model, int threads = 1, int max_rows = 64) {
  auto executor = Executor::create(model, {.threads = threads, .max_rows = max_rows});
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(*executor) : nullptr;
}

std::vector<int32_t> prompt_of(int n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = (i * 31 + 5) % 200;
  return tokens;
}

/// Constant heads, whatever went in. Allocates nothing.
class ConstantAttention final : public attention::LayerAttention {
 public:
  explicit ConstantAttention(const LayerInfo& info) : floats_(info.q_heads * info.head_dim) {}
  void append(int, const float*, const float*, int, int) override {}
  void partial(int, const float*, int, int) override {}
  void merge(int, float* out, int thread, int threads) override {
    for (int i = thread; i < floats_; i += threads) out[i] = 0.25f;
  }

 private:
  int floats_;  ///< of one row
};

TEST(Executor, RefusesWhatItCannotRun) {
  auto model = tiny();
  EXPECT_EQ(Executor::create(nullptr, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::create(model, {.threads = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::create(model, {.threads = 100000}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::create(model, {.max_rows = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Executor::create(model, {.max_rows = INT32_MAX}).status().code(), StatusCode::kInvalidArgument);

  auto executor = executor_for(model, 1, 4);
  testing::NaiveAttention attention(model->info(), 16);
  attention.begin_step(0, 2);
  const auto vocabulary = static_cast<size_t>(model->info().vocabulary);
  const auto code = [&](std::vector<int32_t> tokens, std::vector<int32_t> positions, std::vector<int32_t> rows,
                        size_t logits) {
    std::vector<float> out(logits);
    return executor->run({tokens, positions, rows}, attention, out).code();
  };
  const auto kBad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code({1, 2}, {0, 1}, {1}, vocabulary), StatusCode::kOk);
  EXPECT_EQ(code({}, {}, {}, 0), kBad);
  EXPECT_EQ(code({1, 2, 3, 4, 5}, {0, 1, 2, 3, 4}, {}, 0), kBad);
  EXPECT_EQ(code({1, 2}, {0}, {1}, vocabulary), kBad);
  EXPECT_EQ(code({1, -1}, {0, 1}, {1}, vocabulary), kBad);
  EXPECT_EQ(code({1, model->info().vocabulary}, {0, 1}, {1}, vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, -1}, {1}, vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {2}, vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {-1}, vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {1, 0}, 2 * vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {1, 1}, 2 * vocabulary), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {1}, vocabulary - 1), kBad);
  EXPECT_EQ(code({1, 2}, {0, 1}, {}, vocabulary), kBad);
}

TEST(Executor, ThreadsAndRepetitionsGiveTheSameBits) {
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q4_K, GGML_TYPE_Q8_0}) {
    auto model = tiny({.matrix_type = type});
    const std::vector<int32_t> prompt = prompt_of(13), continuation = prompt_of(3);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 1, 2, 3}) {
      auto executor = executor_for(model, threads);
      auto logits = testing::run_forced(*executor, model->info(), prompt, continuation, 13);
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      if (first.empty()) first = *logits;
      EXPECT_EQ(first, *logits) << ggml_type_name(type) << ", " << threads << " threads";
    }
  }
}

TEST(Executor, OutputRowsAreTheRowsAskedFor) {
  auto model = tiny();
  auto executor = executor_for(model);
  const std::vector<int32_t> tokens = prompt_of(10);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto vocabulary = static_cast<size_t>(model->info().vocabulary);
  const auto run = [&](std::vector<int32_t> rows) {
    testing::NaiveAttention attention(model->info(), 16);
    attention.begin_step(0, static_cast<int>(tokens.size()));
    std::vector<float> logits(rows.size() * vocabulary);
    EXPECT_TRUE(executor->run({tokens, positions, rows}, attention, logits).ok());
    return logits;
  };
  std::vector<int32_t> every(tokens.size());
  std::iota(every.begin(), every.end(), 0);
  const std::vector<float> all = run(every), some = run({2, 9});
  const auto row = [&](const std::vector<float>& logits, size_t i) {
    return std::span<const float>(logits).subspan(i * vocabulary, vocabulary);
  };
  // Another number of output rows may take another kernel, so equal to rounding, and unlike the neighbouring row.
  EXPECT_LT(testing::kl_divergence(row(all, 2), row(some, 0)), 1e-6);
  EXPECT_LT(testing::kl_divergence(row(all, 9), row(some, 1)), 1e-6);
  EXPECT_GT(testing::kl_divergence(row(all, 8), row(some, 1)), 1e-3);
}

TEST(Executor, StepsWithoutOutputsStillFillTheCache) {
  auto model = tiny({.architecture = "gemma3", .layers = 3});
  auto executor = executor_for(model);
  const std::vector<int32_t> prompt = prompt_of(30);
  StepRunner whole(*executor, model->info(), 32), parts(*executor, model->info(), 32);
  auto expected = whole.feed(prompt);
  ASSERT_TRUE(expected.ok());
  ASSERT_TRUE(parts.feed(std::span(prompt).first(29), /*wanted=*/false).ok());
  auto last = parts.feed(std::span(prompt).last(1));
  ASSERT_TRUE(last.ok());
  EXPECT_LT(testing::kl_divergence(*expected, *last), 1e-6);
}

TEST(Executor, GraphsSurviveEvictionAndBufferGrowth) {
  auto model = tiny();
  auto executor = executor_for(model, 1, 64);
  const auto first_logits = [&](int rows) {
    StepRunner runner(*executor, model->info(), 64);
    auto logits = runner.feed(prompt_of(rows));
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    return *logits;
  };
  const std::vector<float> four = first_logits(4);
  for (int rows = 1; rows <= 40; ++rows) first_logits(rows);  // more sizes than are kept
  EXPECT_EQ(first_logits(4), four);

  const size_t before = executor->compute_bytes();
  std::vector<int32_t> tokens = prompt_of(64), positions(64), rows(64);
  std::iota(positions.begin(), positions.end(), 0);
  rows = positions;
  testing::NaiveAttention attention(model->info(), 64);
  attention.begin_step(0, 64);
  std::vector<float> logits(64 * static_cast<size_t>(model->info().vocabulary));
  ASSERT_TRUE(executor->run({tokens, positions, rows}, attention, logits).ok());
  EXPECT_GT(executor->compute_bytes(), before) << "64 outputs need more room than the one reserved for";
  EXPECT_EQ(first_logits(4), four);
}

TEST(Executor, DecodeAllocatesNothingAfterWarmUp) {
  auto model = tiny({.matrix_type = GGML_TYPE_Q4_K});
  auto executor = executor_for(model);
  ConstantAttention attention(model->info().kv_layers[0]);
  std::vector<float> logits(static_cast<size_t>(model->info().vocabulary));
  const int32_t row = 0;
  int64_t before = 0;
  for (int32_t position = 0; position < 20; ++position) {
    if (position == 4) before = testing::allocations_so_far();
    const int32_t token = position;
    ASSERT_TRUE(executor->run({{&token, 1}, {&position, 1}, {&row, 1}}, attention, logits).ok());
  }
  EXPECT_EQ(testing::allocations_so_far() - before, 0);
  for (const float l : logits) ASSERT_TRUE(std::isfinite(l));
}

TEST(Executor, ParallelRunsEachThreadOnce) {
  auto executor = executor_for(tiny(), 3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> calls{0}, sum{0};
    executor->parallel([&](int thread, int threads) {
      EXPECT_EQ(threads, 3);
      ++calls;
      sum += 1 << thread;
    });
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(sum, 7);
  }
  EXPECT_EQ(executor->threads(), 3);
}

TEST(Executor, WideRowsAreRefusedOutOfRangeAndEqualForEveryThreadCount) {
  for (const bool tied : {false, true}) {
    auto model = tiny({.matrix_type = GGML_TYPE_Q4_1, .tied = tied});
    const auto vocabulary = static_cast<size_t>(model->info().vocabulary);
    std::vector<int32_t> tokens = prompt_of(70), positions(70);
    std::iota(positions.begin(), positions.end(), 0);
    const auto run = [&](int threads, int wide_rows, int wide_outputs, std::vector<float>& logits) {
      auto executor = Executor::create(
          model, {.threads = threads, .max_rows = 80, .weight_gemm = WeightGemm::kAuto, .kernels = nullptr});
      EXPECT_TRUE(executor.ok());
      testing::NaiveAttention attention(model->info(), 80);
      attention.begin_step(0, 70);
      logits.assign(70 * vocabulary, 0);
      return (*executor)->run({tokens, positions, positions, wide_rows, wide_outputs}, attention, logits);
    };
    std::vector<float> none, all, some, again;
    ASSERT_TRUE(run(1, 0, 0, none).ok());
    ASSERT_TRUE(run(1, 70, 70, all).ok());
    ASSERT_TRUE(run(1, 66, 66, some).ok());
    for (const int threads : {1, 2, 3}) {
      ASSERT_TRUE(run(threads, 66, 66, again).ok());
      EXPECT_EQ(some, again) << threads << " threads";
    }
    const auto rows = [&](const std::vector<float>& x, size_t first, size_t n) {
      return std::span(x).subspan(first * vocabulary, n * vocabulary);
    };
    // Causal attention: the first 66 rows see nothing of the others.
    EXPECT_TRUE(std::ranges::equal(rows(some, 0, 66), rows(all, 0, 66)));
    EXPECT_FALSE(std::ranges::equal(rows(some, 0, 66), rows(none, 0, 66)));
    EXPECT_FALSE(std::ranges::equal(rows(some, 66, 4), rows(all, 66, 4)));
    for (size_t r = 0; r < 70; ++r) EXPECT_LT(testing::kl_divergence(rows(none, r, 1), rows(some, r, 1)), 5e-3);
    for (const auto& [rows, outputs] : {std::pair{63, 0}, {71, 0}, {-1, 0}, {70, 63}, {70, 71}}) {
      EXPECT_EQ(run(1, rows, outputs, again).code(), StatusCode::kInvalidArgument) << rows << ", " << outputs;
    }
  }
}

TEST(Executor, RepackedWeightsAreUsedAndAgree) {
  const TinySpec spec{.matrix_type = GGML_TYPE_Q4_K};
  auto repacked = tiny(spec), plain = tiny(spec, {.repack = false});
  EXPECT_EQ(plain->repacked_bytes(), 0u);
  // Two layers of q, k, v, output, gate, up, down; 4.5 bits per weight. The output's 295 rows do not pack in eights.
  EXPECT_EQ(repacked->repacked_bytes(), 2u * (256 * 256 * 5 + 256 * 128 * 2) * 144 / 256);
  const std::vector<int32_t> prompt = prompt_of(40), continuation = prompt_of(6);
  auto a = testing::run_forced(*executor_for(repacked), repacked->info(), prompt, continuation, 40);
  auto b = testing::run_forced(*executor_for(plain), plain->info(), prompt, continuation, 40);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_LT(testing::distance(*a, *b).mean_kl, 5e-3);
}

}  // namespace
}  // namespace varve::model
