// Every format, geometry and context shape against fp64 over the decoded cache: relative error at most 1e-3 of the
// output's norm. What differs is the kernels' arithmetic alone, never the codec's loss.

#include <gtest/gtest.h>

#include "support.h"

namespace varve::attention::test {
namespace {

constexpr double kBound = 1e-3;

const std::vector<std::string> kFormats = {"f16",  "fp8",  "int8", "k8v4", "k6v4", "k5v4", "k5v3",
                                           "k4v4", "k4v3", "k3v3", "k3v2", "k2v2"};

std::string kernel_name(const testing::TestParamInfo<const kernels::Kernels*>& info) { return info.param->name; }

/// Runs one step of one sequence and checks sampled rows.
void check(const ClassSpec& spec, const std::vector<int>& tier_of, int past, int rows, uint32_t seed,
           const kernels::Kernels& kernels) {
  TestClass cls(spec);
  TestSequence sequence(cls, past + rows, seed);
  sequence.fill(past, tier_of);
  if (spec.window > 0) sequence.drop_below(past - spec.window + 1);
  ClassAttention attention(cls.geometry(), kernels, 1);
  const Part part{&sequence, past, rows};
  const StepOutput output = run_step(attention, {part}, 1);
  std::string where;
  const double error = worst_error(output, part, 0, sample_rows(past, rows, seed), &where);
  EXPECT_LE(error, kBound) << where << ": " << format::format_name(spec.tiers.back()[0]) << " centre "
                           << format::centre_name(spec.tiers.back()[0].centre) << " heads " << spec.q_heads << "/"
                           << spec.kv_heads << " dim " << spec.head_dim << " n_rot " << spec.n_rot << " neox "
                           << spec.neox << " page " << spec.page_tokens << " window " << spec.window << " softcap "
                           << spec.softcap << " sinks " << spec.sink_tokens << " past " << past << " rows " << rows
                           << " kernels " << kernels.name;
}

class Accuracy : public testing::TestWithParam<const kernels::Kernels*> {
 protected:
  /// The scalar reference table gets fewer and smaller cases.
  static bool slow() { return std::string(GetParam()->name) == "generic"; }
};

LayerFormat with_centre(const std::string& name, Centre centre) {
  return format_of(name, name == "f16" ? Centre::kNone : centre);
}

// Every format with every centre, decode and prefill, at a plain geometry.
TEST_P(Accuracy, UniformFormats) {
  uint32_t seed = 1;
  for (const std::string& name : kFormats) {
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      ClassSpec spec;
      spec.tiers = {{with_centre(name, centre)}};
      spec.q_heads = 3;
      for (const int rows : {1, 70}) check(spec, {0}, 700 + static_cast<int>(seed) % 64, rows, seed, *GetParam());
      ++seed;
    }
  }
}

// int8 recent pages, k4v3 stale pages, some layers in f16 throughout, some f16 in one tier only.
TEST_P(Accuracy, MixedTiers) {
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    ClassSpec spec;
    const LayerFormat f16 = format_of("f16");
    spec.tiers = {{format_of("int8", centre), f16, format_of("fp8", centre), f16, format_of("int8", Centre::kPost)},
                  {format_of("k4v3", centre), f16, format_of("k5v4", centre), format_of("k6v4", centre), f16},
                  {format_of("k3v2", Centre::kNone), f16, f16, format_of("k2v2", centre), format_of("fp8", centre)}};
    spec.q_heads = 6;
    spec.kv_heads = 2;
    uint32_t seed = 100;
    for (const int rows : {1, 4, 5, 130}) {
      if (slow() && rows > 5) continue;
      check(spec, {1, 0, 2, 1}, (slow() ? 900 : 1500) + rows, rows, ++seed, *GetParam());
    }
  }
}

// Random crosses of everything; pasts walk through all remainders of tile and page.
TEST_P(Accuracy, RandomCrosses) {
  std::mt19937 random(2024);
  const auto one_of = [&](const auto& choices) { return choices[random() % std::size(choices)]; };
  const int cases = slow() ? 40 : 192;
  for (int i = 0; i < cases; ++i) {
    ClassSpec spec;
    constexpr int kDims[] = {64, 80, 96, 128, 192, 256};
    constexpr int kGroups[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
    constexpr int kPages[] = {64, 256, 256, 832};
    constexpr Centre kCentres[] = {Centre::kNone, Centre::kPost, Centre::kRotary, Centre::kRotary};
    spec.head_dim = kDims[i % 6];
    spec.kv_heads = 1 + static_cast<int>(random() % 2);
    spec.q_heads = spec.kv_heads * one_of(kGroups);
    spec.n_rot = random() % 3 == 0 ? spec.head_dim / 2 : spec.head_dim;
    spec.neox = random() % 2 == 0;
    spec.theta_base = random() % 2 == 0 ? 1e4f : 1e6f;
    spec.page_tokens = one_of(kPages);
    spec.sink_tokens = static_cast<int>(random() % 17);
    spec.softcap = random() % 4 == 0 ? 30.0f : 0.0f;
    const Centre centre = one_of(kCentres);
    std::vector<std::string> names(3);
    for (std::string& name : names) name = one_of(kFormats);
    spec.tiers = {{with_centre(names[0], centre)}, {with_centre(names[1], centre)}, {with_centre(names[2], centre)}};
    constexpr int kRows[] = {1, 1, 2, 4, 5, 17, 64, 100};
    const int rows = i % 48 == 47 && !slow() ? 512 : one_of(kRows);
    const int longest = slow() ? 900 : (rows > 4 ? 2600 : 5000);
    // Remainder i modulo 64 at a random page; now and then no past at all, or a very short one.
    int past = static_cast<int>(random() % static_cast<uint32_t>(longest / 64)) * 64 + i % 64;
    if (i % 16 == 3) past = i / 16;
    constexpr int kWindows[] = {1, 63, 64, 100, 512, 1000};
    if (random() % 3 == 0) spec.window = one_of(kWindows);
    check(spec, {0, 1, 2}, past, rows, 7000 + static_cast<uint32_t>(i), *GetParam());
  }
}

// Context lengths around every edge that code distinguishes: nothing cached, sinks, tile, decode cut, page.
TEST_P(Accuracy, ContextEdges) {
  for (const char* name : {"f16", "int8", "k4v3"}) {
    ClassSpec spec;
    spec.tiers = {{with_centre(name, Centre::kRotary)}};
    spec.sink_tokens = 16;
    for (const int past : {0, 1, 15, 16, 17, 62, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 513, 1023, 1024}) {
      for (const int rows : {1, 4, 5, 65}) check(spec, {0}, past, rows, static_cast<uint32_t>(past), *GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Accuracy, testing::ValuesIn(kernels::available()), kernel_name);

}  // namespace
}  // namespace varve::attention::test
