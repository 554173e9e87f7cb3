// Bit-equal results: whatever the number of threads, whoever else is in the batch, run after run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support.h"

namespace varve::attention::test {
namespace {

class Determinism : public testing::TestWithParam<const kernels::Kernels*> {};

ClassSpec mixed_spec() {
  ClassSpec spec;
  const LayerFormat int8 = format_of("int8", Centre::kRotary);
  spec.tiers = {{int8, format_of("f16"), format_of("fp8"), int8, int8},
                {format_of("k4v3", Centre::kRotary), format_of("f16"), format_of("k5v4", Centre::kPost),
                 format_of("lr24+20"), format_of("lr16+30/int4/rotated")}};
  spec.q_heads = 6;
  spec.kv_heads = 2;
  return spec;
}

void expect_equal(const std::vector<float>& a, const std::vector<float>& b, const ClassSpec& spec, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  const size_t row = static_cast<size_t>(spec.q_heads * spec.head_dim);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << ": row " << i / row << " head " << i % row / static_cast<size_t>(spec.head_dim) << " dim "
        << i % static_cast<size_t>(spec.head_dim) << ": " << a[i] << " against " << b[i];
  }
}

/// Three sequences that decode, decode a few rows and prefill, freshly built.
struct Batch {
  explicit Batch(const TestClass& cls) {
    for (size_t i = 0; i < 3; ++i) {
      sequences.push_back(std::make_unique<TestSequence>(cls, kPast[i] + kRows[i], static_cast<uint32_t>(50 + i)));
      sequences.back()->fill(kPast[i], {1, 0, 1});
    }
  }
  Part part(size_t i) { return {sequences[i].get(), kPast[i], kRows[i]}; }

  static constexpr int kPast[] = {1379, 610, 700};
  static constexpr int kRows[] = {1, 3, 90};
  std::vector<std::unique_ptr<TestSequence>> sequences;
};

TEST_P(Determinism, ThreadsDoNotMatter) {
  const TestClass cls(mixed_spec());
  StepOutput first;
  std::vector<std::vector<uint8_t>> pages;
  for (const int threads : {1, 2, 3, 3}) {
    Batch batch(cls);
    ClassAttention attention(cls.geometry(), *GetParam(), 3);
    const StepOutput output = run_step(attention, {batch.part(0), batch.part(1), batch.part(2)}, threads);
    std::vector<std::vector<uint8_t>> now;
    for (const auto& sequence : batch.sequences) {
      for (int i = 0; i < sequence->pages(); ++i) {
        now.emplace_back(sequence->page(i), sequence->page(i) + cls.slot(sequence->tier(i)).bytes);
      }
      now.emplace_back(sequence->strip(), sequence->strip() + cls.strip().bytes);
    }
    if (first.empty()) {
      first = output;
      pages = now;
      continue;
    }
    for (size_t i = 0; i < first.size(); ++i) expect_equal(first[i], output[i], cls.spec(), "threads");
    EXPECT_EQ(pages, now) << "cache bytes with " << threads << " threads";
  }
}

TEST_P(Determinism, NeighboursDoNotMatter) {
  const TestClass cls(mixed_spec());
  Batch together(cls);
  ClassAttention attention(cls.geometry(), *GetParam(), 2);
  const StepOutput batch = run_step(attention, {together.part(0), together.part(1), together.part(2)}, 2);
  size_t row = 0;
  for (size_t s = 0; s < 3; ++s) {
    Batch alone(cls);
    const StepOutput solo = run_step(attention, {alone.part(s)}, 1);
    const size_t width = static_cast<size_t>(cls.spec().q_heads * cls.spec().head_dim);
    const size_t rows = static_cast<size_t>(Batch::kRows[s]);
    for (size_t i = 0; i < solo.size(); ++i) {
      const auto begin = batch[i].begin() + static_cast<ptrdiff_t>(row * width);
      expect_equal({begin, begin + static_cast<ptrdiff_t>(rows * width)}, solo[i], cls.spec(), "batch");
    }
    row += rows;
  }
}

// A row of a few-row decode step has the bits of the same row decoded alone, where the cache it sees is the same
// (f16 pages are; a tail that is sealed between the steps is not).
TEST_P(Determinism, DecodeRowsAreIndependentOverDensePages) {
  ClassSpec spec;
  spec.tiers = {{format_of("f16")}};
  spec.q_heads = 3;
  const TestClass cls(spec);
  constexpr int kPast = 1022;
  TestSequence together(cls, kPast + 4, 9), apart(cls, kPast + 4, 9);
  together.fill(kPast, {0});
  apart.fill(kPast, {0});
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  const StepOutput four = run_step(attention, {{&together, kPast, 4}}, 1);
  for (int r = 0; r < 4; ++r) {
    const StepOutput one = run_step(attention, {{&apart, kPast + r, 1}}, 1);
    const auto begin = four[0].begin() + static_cast<ptrdiff_t>(r * 3 * 64);
    expect_equal({begin, begin + 3 * 64}, one[0], spec, "rows");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Determinism, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
