// The contenders of the attention bench compute attention: ours to the kernels' bound, ggml's to its own.

#include "eval/cpu/attention_case.h"

#include <gtest/gtest.h>

namespace varve::eval {
namespace {

constexpr int kThreads = 1;  // ggml's barrier spins; tests run side by side

class AttentionCase : public ::testing::TestWithParam<AttentionShape> {
 protected:
  /// Both errors of the first layer, after a pass over several layers.
  void check(Result<std::unique_ptr<AttentionContender>> made, const AttentionData& data, double kernel, double total) {
    ASSERT_TRUE(made.ok()) << made.status().message();
    const auto seconds = (*made)->run(2);
    ASSERT_TRUE(seconds.ok()) << seconds.status().message();
    EXPECT_GT(*seconds, 0);
    std::vector<float> k, v;
    (*made)->stored(&k, &v);
    EXPECT_LT(relative_error((*made)->output(), exact_attention(data, k, v)), kernel);
    EXPECT_LT(relative_error((*made)->output(), exact_attention(data, data.k, data.v)), total);
    size_t bytes = 0;
    for (const auto& region : (*made)->regions()) bytes += region.size();
    EXPECT_GE(bytes, (*made)->layer_bytes());
  }
};

TEST_P(AttentionCase, OursIsExactOverWhatItStores) {
  auto runner = Runner::create(kThreads);
  ASSERT_TRUE(runner.ok());
  const AttentionData data = random_attention(GetParam());
  const kernels::Kernels& kernels = *kernels::available().front();
  for (const auto& [format, total] : {std::pair{"f16", 2e-3},
                                      {"int8.post", 0.05},
                                      {"fp8.post", 0.1},
                                      {"k4v3.post", 0.4},
                                      {"k4v3.rotary", 0.4},
                                      {"k3v3.post", 0.4}}) {
    SCOPED_TRACE(format);
    check(our_attention(**runner, data, format, kernels, 1 << 20), data, 1e-3, total);
  }
}

TEST_P(AttentionCase, ThePeerIsAttentionToo) {
  auto runner = Runner::create(kThreads);
  ASSERT_TRUE(runner.ok());
  const AttentionData data = random_attention(GetParam());
  check(peer_attention(**runner, data, "f16", false, 1 << 20), data, 5e-3, 5e-3);
  check(peer_attention(**runner, data, "f16", true, 1 << 20), data, 5e-3, 5e-3);
  check(peer_attention(**runner, data, "q8_0", true, 1 << 20), data, 0.02, 0.05);
  check(peer_attention(**runner, data, "q4_0", true, 1 << 20), data, 0.02, 0.4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionCase,
                         ::testing::Values(AttentionShape{9, 3, 64, 512}, AttentionShape{32, 8, 128, 256},
                                           AttentionShape{4, 1, 256, 256}, AttentionShape{24, 4, 256, 256}));

TEST(AttentionCase, WhatDoesNotExistIsRefused) {
  auto runner = Runner::create(kThreads);
  ASSERT_TRUE(runner.ok());
  const AttentionData data = random_attention({9, 3, 64, 256});
  EXPECT_EQ(peer_attention(**runner, data, "q8_0", false, 0).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(peer_attention(**runner, data, "q5_1", true, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(our_attention(**runner, data, "k9v3", *kernels::available().front(), 0).ok());
}

TEST(AttentionCase, ExactAttentionOfOneKeyIsItsValue) {
  AttentionData data{
      {1, 1, 64, 21}, std::vector<float>(64, 1), std::vector<float>(64 * 21, 1), std::vector<float>(64 * 21, 3)};
  ASSERT_EQ(data.shape.length(), 1);
  for (const double x : exact_attention(data, data.k, data.v)) EXPECT_DOUBLE_EQ(x, 3);
}

}  // namespace
}  // namespace varve::eval
