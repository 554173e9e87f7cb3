// Attention over low-rank pages against fp64 over the decoded blocks: relative error at most 1e-3 of the output's norm.

#include <gtest/gtest.h>

#include <algorithm>

#include "poison.h"
#include "support.h"

namespace varve::attention::test {
namespace {

constexpr double kBound = 1e-3;

class LowRankAttention : public testing::TestWithParam<const kernels::Kernels*> {
 protected:
  /// The scalar reference table gets fewer cases.
  static bool slow() { return std::string(GetParam()->name) == "generic"; }

  static void check(const ClassSpec& spec, const std::vector<int>& tier_of, int past, int rows, uint32_t seed) {
    const TestClass cls(spec);
    TestSequence sequence(cls, past + rows, seed);
    sequence.fill(past, tier_of);
    if (spec.window > 0) sequence.drop_below(past - spec.window + 1);
    ClassAttention attention(cls.geometry(), *GetParam(), 1);
    const Part part{&sequence, past, rows};
    const StepOutput output = run_step(attention, {part}, 1);
    std::string where;
    const double error = worst_error(output, part, 0, sample_rows(past, rows, seed), &where);
    EXPECT_LE(error, kBound) << where << ": " << format::format_name(spec.tiers.back()[0]) << " heads " << spec.q_heads
                             << "/" << spec.kv_heads << " dim " << spec.head_dim << " n_rot " << spec.n_rot << " neox "
                             << spec.neox << " page " << spec.page_tokens << " window " << spec.window << " softcap "
                             << spec.softcap << " sinks " << spec.sink_tokens << " past " << past << " rows " << rows
                             << " kernels " << GetParam()->name;
  }
};

// Both frames and every row codec at a plain geometry, decode and prefill.
TEST_P(LowRankAttention, Formats) {
  uint32_t seed = 1;
  for (const char* frame : {"", "/rotated"}) {
    for (const char* rows_in : {"", "/int4", "/f16"}) {
      for (const char* ranks : {"lr1+0", "lr4+255", "lr32+64", "lr64+0"}) {
        ClassSpec spec;
        spec.tiers = {{format_of("int8", Centre::kPost)}, {format_of(std::string(ranks) + rows_in + frame)}};
        spec.q_heads = 6;
        spec.kv_heads = 2;
        for (const int rows : {1, 70}) {
          ++seed;
          check(spec, {1}, 600 + static_cast<int>(seed) % 64, rows, seed);
        }
      }
    }
  }
}

// Random crosses of geometry, rank, rows, page size, frame, masks and context length.
TEST_P(LowRankAttention, RandomCrosses) {
  std::mt19937 random(77);
  const auto one_of = [&](const auto& choices) { return choices[random() % std::size(choices)]; };
  const int cases = slow() ? 24 : 120;
  for (int i = 0; i < cases; ++i) {
    ClassSpec spec;
    constexpr int kDims[] = {64, 80, 96, 128, 192, 256};
    constexpr int kGroups[] = {1, 2, 3, 4, 5, 7, 8, 16};
    constexpr int kPages[] = {64, 128, 256, 832, 1024};
    spec.head_dim = kDims[i % 6];
    spec.kv_heads = 1 + static_cast<int>(random() % 3);
    spec.q_heads = spec.kv_heads * one_of(kGroups);
    spec.n_rot = random() % 2 == 0 ? spec.head_dim / 2 : spec.head_dim;
    spec.neox = random() % 2 == 0;
    spec.theta_base = random() % 2 == 0 ? 1e4f : 1e6f;
    spec.page_tokens = one_of(kPages);
    spec.sink_tokens = static_cast<int>(random() % 17);
    spec.softcap = random() % 4 == 0 ? 30.0f : 0.0f;
    constexpr int kRanks[] = {1, 5, 16, 31, 48};
    constexpr const char* kRowCodecs[] = {"", "/int4", "/f16"};
    const int rank = one_of(kRanks);
    const auto most_rows = static_cast<uint32_t>(std::min(spec.page_tokens, 200));
    const std::string name = "lr" + std::to_string(rank) + "+" + std::to_string(random() % most_rows) +
                             one_of(kRowCodecs) + (random() % 2 == 0 ? "/rotated" : "");
    spec.tiers = {{format_of("int8", Centre::kRotary)}, {format_of(name)}, {format_of("k3v3", Centre::kRotary)}};
    constexpr int kRows[] = {1, 1, 2, 4, 5, 17, 64, 100};
    constexpr int kWindows[] = {1, 63, 100, 512, 1000};
    if (random() % 3 == 0) spec.window = one_of(kWindows);
    const int past = static_cast<int>(random() % (slow() ? 20 : 36)) * 64 + i % 64;
    check(spec, {1, 1, 0, 2}, past, one_of(kRows), 900 + static_cast<uint32_t>(i));
  }
}

// One sequence of f16, int8, k3v3 and low-rank pages, and layers that differ: one softmax.
TEST_P(LowRankAttention, MixedPagesAndLayers) {
  ClassSpec spec;
  const LayerFormat f16 = format_of("f16"), int8 = format_of("int8", Centre::kRotary),
                    k3v3 = format_of("k3v3", Centre::kRotary);
  spec.tiers = {{int8, f16, int8, int8},
                {format_of("lr32+32"), format_of("lr16+16/rotated"), k3v3, f16},
                {k3v3, f16, format_of("lr8+60"), k3v3},
                {f16, format_of("lr32+0"), int8, format_of("lr8+8/int4")}};
  spec.q_heads = 9;
  spec.kv_heads = 3;
  uint32_t seed = 50;
  for (const int rows : {1, 4, 5, 130}) check(spec, {1, 0, 2, 1, 3, 3}, (slow() ? 900 : 2300) + rows, rows, ++seed);
}

// A NaN row is kept exact: it reaches the rows that attend to it, in its KV head, and no other.
TEST_P(LowRankAttention, NanStaysWithThoseWhoAttend) {
  const auto check = [](const char* name, int window, bool key, int poisoned, int past, int rows) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8")}, {format_of(name)}};
    spec.page_tokens = 64;
    spec.window = window;
    check_poison(*GetParam(), spec, {1}, name, key, poisoned, past, rows);
  };
  for (const char* name : {"lr8+8", "lr8+8/rotated", "lr4+6/f16"}) {
    for (const bool key : {true, false}) {
      for (const int rows : {1, 4, 40}) {
        check(name, 0, key, 100, 700, rows);
        check(name, 128, key, 700 - 128 + rows / 2, 700, rows);  // leaves the window on the way
        check(name, 150, key, 545, 700, rows);                   // in the first page of the window, unseen
        check(name, 128, key, 20, 700, rows);                    // nobody sees it
        check(name, 0, key, 2, 700, rows);                       // a sink: exact in the strip, NaN there too
      }
    }
  }
}

// A block without directions is its anchor and its exact rows.
TEST_P(LowRankAttention, EqualRowsHaveNoDirections) {
  for (const char* name : {"lr8+8/rotated", "lr8+0/rotated"}) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8")}, {format_of(name)}};
    spec.page_tokens = 128;
    const TestClass cls(spec);
    for (const int rows : {1, 20}) {
      TestSequence sequence(cls, 500 + rows, 9);
      for (std::vector<float>* side : {&sequence.rows(0).k, &sequence.rows(0).v}) {
        for (size_t i = 64; i < 500 * 64; ++i) (*side)[i] = (*side)[i % 64];
      }
      sequence.fill(500, {1});
      const format::BlockShape shape = format::block_shape(cls.layers()[0], spec.tiers[1][0], 128);
      ASSERT_EQ(format::view_block(shape, sequence.page(1) + cls.slot(1).layers[0].offset).rank, 0);
      ClassAttention attention(cls.geometry(), *GetParam(), 1);
      const Part part{&sequence, 500, rows};
      const StepOutput output = run_step(attention, {part}, 1);
      EXPECT_LE(worst_error(output, part, 0, sample_rows(500, rows, 1)), kBound) << name << " " << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LowRankAttention, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
