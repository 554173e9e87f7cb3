// Page mass against fp64 over the decoded cache, and what collecting it must not change.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support.h"

namespace varve::attention::test {
namespace {

/// Contract: 1e-3. What differs is the rounding of queries to 15 bits in scores of a few tens.
constexpr double kBound = 2e-4;

class Mass : public testing::TestWithParam<const kernels::Kernels*> {
 protected:
  static bool slow() { return std::string(GetParam()->name) == "generic"; }
};

LayerFormat with_centre(const std::string& name, Centre centre) {
  return format_of(name, name == "f16" ? Centre::kNone : centre);
}

/// Equations 6 to 9 in double over the decoded cache, of the first `heads` query heads (0: all). Rows that see sinks
/// alone are left out.
std::vector<double> expected_mass(const Part& part, const MassRequest& request, int heads = 0) {
  TestSequence& sequence = *part.sequence;
  const ClassSpec& spec = sequence.cls().spec();
  const std::vector<PageView> pages = sequence.view(0, part.past, part.rows).pages;
  std::vector<double> mass(pages.size());
  int counted = 0;
  for (int i = 0; i < static_cast<int>(spec.tiers[0].size()); i += request.layer_stride) {
    const int sinks = sequence.cls().owns_strip(i) ? spec.sink_tokens : 0;
    HeadRows head;
    for (int h = 0; h < (heads > 0 ? heads : spec.q_heads); ++h) {
      const int group = spec.q_heads / spec.kv_heads;
      if (h % group == 0) head = sequence.decoded(i, h / group, part.past);
      for (int r = std::max(0, part.rows - request.rows); r < part.rows; ++r) {
        int first = 0;
        const std::vector<double> p = sequence.weights(head, i, part.past + r, h, &first);
        std::vector<double> row(pages.size());
        for (int t = 0; t < static_cast<int>(p.size()); ++t) {
          if (first + t < sinks) continue;
          row[static_cast<size_t>((first + t - pages.front().start) / spec.page_tokens)] += p[static_cast<size_t>(t)];
        }
        const double total = std::accumulate(row.begin(), row.end(), 0.0);
        if (!(total > 1e-30)) continue;
        ++counted;
        for (size_t page = 0; page < row.size(); ++page) mass[page] += row[page] / total;
      }
    }
  }
  for (double& m : mass) m /= std::max(counted, 1);
  return mass;
}

std::vector<float> copy(std::span<const float> x) { return {x.begin(), x.end()}; }

void expect_mass(const std::vector<double>& want, std::span<const float> got, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double sum = 0;
  for (size_t p = 0; p < want.size(); ++p) {
    EXPECT_NEAR(static_cast<double>(got[p]), want[p], kBound) << what << " page " << p << " of " << want.size();
    EXPECT_GE(got[p], 0.0f) << what;
    sum += static_cast<double>(got[p]);
  }
  const double want_sum = std::accumulate(want.begin(), want.end(), 0.0);
  EXPECT_NEAR(sum, want_sum > 0 ? 1.0 : 0.0, 1e-5) << what;
}

void check(const ClassSpec& spec, const std::vector<int>& tier_of, int past, int rows, const MassRequest& request,
           uint32_t seed, const kernels::Kernels& kernels, float bias = 1.0f) {
  const TestClass cls(spec);
  TestSequence sequence(cls, past + rows, seed, bias);
  sequence.fill(past, tier_of);
  if (spec.window > 0) sequence.drop_below(past - spec.window + 1);
  ClassAttention attention(cls.geometry(), kernels, 1);
  const Part part{&sequence, past, rows};
  run_step(attention, {part}, 1, request);
  const std::string what = format::format_name(spec.tiers.back()[0]) + " centre " +
                           format::centre_name(spec.tiers.back()[0].centre) + " heads " + std::to_string(spec.q_heads) +
                           "/" + std::to_string(spec.kv_heads) + " dim " + std::to_string(spec.head_dim) + " page " +
                           std::to_string(spec.page_tokens) + " window " + std::to_string(spec.window) + " sinks " +
                           std::to_string(spec.sink_tokens) + " past " + std::to_string(past) + " rows " +
                           std::to_string(rows) + " scored " + std::to_string(request.rows) + " " + kernels.name;
  expect_mass(expected_mass(part, request), attention.page_mass(0), what);
}

TEST_P(Mass, MixedTiersAndCentres) {
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    ClassSpec spec;
    const LayerFormat f16 = format_of("f16");
    spec.tiers = {{format_of("int8", centre), f16, format_of("fp8", centre), format_of("int8", centre)},
                  {format_of("k4v3", centre), f16, format_of("k5v4", centre), format_of("lr16+20")},
                  {format_of("k3v2", Centre::kNone), f16, f16, format_of("lr8+30/rotated")}};
    spec.q_heads = 6;
    spec.kv_heads = 2;
    uint32_t seed = 100;
    for (const int rows : {1, 3, 5, 130}) {
      if (slow() && rows > 5) continue;
      for (const int scored : {1, 2, 70}) {
        if (rows < scored && rows != 3) continue;
        check(spec, {1, 0, 2, 1}, 900 + rows, rows, {scored, 1 + scored % 2}, ++seed, *GetParam());
      }
    }
  }
}

TEST_P(Mass, RandomCrosses) {
  std::mt19937 random(77);
  const auto one_of = [&](const auto& choices) { return choices[random() % std::size(choices)]; };
  constexpr const char* kFormats[] = {"f16", "fp8", "int8", "k6v4", "k4v3", "k3v3", "k2v2"};
  for (int i = 0; i < (slow() ? 20 : 96); ++i) {
    ClassSpec spec;
    constexpr int kDims[] = {64, 80, 96, 128, 192, 256};
    constexpr int kGroups[] = {1, 2, 3, 5, 7, 9, 16};
    constexpr int kPages[] = {64, 128, 256, 832};
    constexpr Centre kCentres[] = {Centre::kNone, Centre::kPost, Centre::kRotary};
    spec.head_dim = kDims[i % 6];
    spec.kv_heads = 1 + static_cast<int>(random() % 2);
    spec.q_heads = spec.kv_heads * one_of(kGroups);
    spec.n_rot = random() % 3 == 0 ? spec.head_dim / 2 : spec.head_dim;
    spec.neox = random() % 2 == 0;
    spec.page_tokens = one_of(kPages);
    spec.sink_tokens = static_cast<int>(random() % 17);
    spec.softcap = random() % 4 == 0 ? 30.0f : 0.0f;
    const Centre centre = one_of(kCentres);
    for (int tier = 0; tier < 3; ++tier) spec.tiers.push_back({with_centre(one_of(kFormats), centre)});
    constexpr int kRows[] = {1, 1, 2, 4, 5, 17, 100};
    const int rows = one_of(kRows);
    const int longest = slow() ? 900 : 2600;
    const int past =
        i % 16 == 3 ? i / 4 : static_cast<int>(random() % static_cast<uint32_t>(longest / 64)) * 64 + i % 64;
    constexpr int kWindows[] = {1, 64, 100, 512, 1000};
    if (random() % 3 == 0) spec.window = one_of(kWindows);
    constexpr int kScored[] = {1, 2, 8};
    check(spec, {0, 1, 2}, past, rows, {one_of(kScored), 1}, 9000 + static_cast<uint32_t>(i), *GetParam());
  }
}

// Nothing but sinks, sinks in the open tile, and every edge of tile, cut and page.
TEST_P(Mass, ContextEdges) {
  for (const char* name : {"f16", "int8"}) {
    ClassSpec spec;
    spec.tiers = {{with_centre(name, Centre::kRotary)}};
    spec.sink_tokens = 16;
    for (const int past : {0, 1, 15, 16, 17, 62, 63, 64, 65, 255, 256, 511, 512, 513, 1024}) {
      for (const int rows : {1, 4, 5, 65}) {
        check(spec, {0}, past, rows, {3, 1}, static_cast<uint32_t>(past), *GetParam());
      }
    }
  }
}

// Sharp attention: the maximum moves from block to block, and one page takes nearly all.
TEST_P(Mass, PeakedScores) {
  for (const int rows : {1, 40}) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8", Centre::kRotary)}};
    check(spec, {0}, 1200, rows, {4, 1}, 5, *GetParam(), 10.0f);
  }
}

ClassSpec mixed_spec() {
  ClassSpec spec;
  spec.tiers = {{format_of("int8", Centre::kRotary), format_of("f16"), format_of("fp8")},
                {format_of("k4v3", Centre::kRotary), format_of("f16"), format_of("k5v4", Centre::kPost)}};
  spec.q_heads = 6;
  spec.kv_heads = 2;
  return spec;
}

struct Batch {
  explicit Batch(const TestClass& cls) {
    for (size_t i = 0; i < 3; ++i) {
      sequences.push_back(
          std::make_unique<TestSequence>(cls, kPast[i] + kRows[i], static_cast<uint32_t>(50 + i), 1.0f));
      sequences.back()->fill(kPast[i], {1, 0, 1});
    }
  }
  Part part(size_t i) { return {sequences[i].get(), kPast[i], kRows[i]}; }
  std::vector<Part> parts() { return {part(0), part(1), part(2)}; }

  static constexpr int kPast[] = {1379, 610, 700};
  static constexpr int kRows[] = {1, 3, 90};
  std::vector<std::unique_ptr<TestSequence>> sequences;
};

constexpr MassRequest kEverySecond{4, 2};

TEST_P(Mass, ThreadsDoNotMatter) {
  const TestClass cls(mixed_spec());
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 3}) {
    Batch batch(cls);
    ClassAttention attention(cls.geometry(), *GetParam(), 3);
    run_step(attention, batch.parts(), threads, kEverySecond);
    std::vector<std::vector<float>> now;
    for (size_t s = 0; s < 3; ++s) now.push_back(copy(attention.page_mass(s)));
    if (first.empty()) first = now;
    EXPECT_EQ(first, now) << threads << " threads";
  }
}

TEST_P(Mass, NeighboursDoNotMatter) {
  const TestClass cls(mixed_spec());
  Batch together(cls);
  ClassAttention attention(cls.geometry(), *GetParam(), 2);
  run_step(attention, together.parts(), 2, kEverySecond);
  for (size_t s = 0; s < 3; ++s) {
    Batch alone(cls);
    ClassAttention solo(cls.geometry(), *GetParam(), 1);
    run_step(solo, {alone.part(s)}, 1, kEverySecond);
    EXPECT_EQ(copy(attention.page_mass(s)), copy(solo.page_mass(0))) << "sequence " << s;
    EXPECT_EQ(attention.mass_skipped(s), 0);
  }
}

TEST_P(Mass, OutputsHaveTheSameBitsWithAndWithout) {
  const TestClass cls(mixed_spec());
  Batch with(cls), without(cls);
  ClassAttention attention(cls.geometry(), *GetParam(), 2);
  const StepOutput a = run_step(attention, with.parts(), 2, {100, 1});
  const StepOutput b = run_step(attention, without.parts(), 2);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0) << "layer " << i;
  }
}

TEST_P(Mass, NothingAskedNothingHeld) {
  const TestClass cls(mixed_spec());
  Batch batch(cls);
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  run_step(attention, batch.parts(), 1);
  EXPECT_TRUE(attention.page_mass(0).empty());
  EXPECT_EQ(attention.mass_skipped(0), 0);
  const size_t without = attention.activation_bytes();
  run_step(attention, batch.parts(), 1, {4, 1});
  // Tiles of one layer's scored heads (rows of 1379 tokens see 22 tiles), and pages.
  EXPECT_GE(attention.activation_bytes(), without + 6 * 22 * sizeof(float));
  EXPECT_EQ(attention.page_mass(0).size(), 6u);
  EXPECT_TRUE(attention.page_mass(3).empty());
  run_step(attention, batch.parts(), 1);
  EXPECT_TRUE(attention.page_mass(0).empty());
}

// A lost key takes the rows that see it out of the mean, and nothing else; lost values do not count here at all.
TEST_P(Mass, NanIsLeftOutAndCounted) {
  constexpr int kPast = 700;
  for (const char* name : {"f16", "int8", "k4v3"}) {
    for (const int rows : {1, 40}) {
      for (const bool key : {true, false}) {
        ClassSpec spec;
        spec.tiers = {{format_of(name)}};
        spec.q_heads = 4;
        spec.kv_heads = 2;
        const TestClass cls(spec);
        TestSequence sequence(cls, kPast + rows, 3, 1.0f), healthy(cls, kPast + rows, 3, 1.0f);
        std::vector<float>& side = key ? sequence.rows(0).k : sequence.rows(0).v;
        side[100 * 2 * 64 + 64 + 5] = std::numeric_limits<float>::quiet_NaN();  // KV head 1
        sequence.fill(kPast, {0});
        healthy.fill(kPast, {0});
        ClassAttention attention(cls.geometry(), *GetParam(), 1);
        run_step(attention, {{&sequence, kPast, rows}}, 1, {2, 1});
        const int scored = std::min(rows, 2);
        EXPECT_EQ(attention.mass_skipped(0), key ? 2 * scored : 0) << name << " rows " << rows;
        // Without KV head 1, what is left are the query heads 0 and 1, as in the healthy cache.
        expect_mass(expected_mass({&healthy, kPast, rows}, {2, 1}, key ? 2 : 4), attention.page_mass(0), name);
      }
    }
  }
}

TEST_P(Mass, AllLostGivesZeros) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}};
  const TestClass cls(spec);
  TestSequence sequence(cls, 301, 3);
  std::fill(sequence.rows(0).q.begin(), sequence.rows(0).q.end(), std::numeric_limits<float>::quiet_NaN());
  sequence.fill(300, {0});
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  run_step(attention, {{&sequence, 300, 1}}, 1, {1, 1});
  EXPECT_EQ(copy(attention.page_mass(0)), (std::vector<float>{0, 0}));
  EXPECT_EQ(attention.mass_skipped(0), 2);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Mass, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(MassRequests, NonsenseIsRefused) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}};
  const TestClass cls(spec);
  ClassAttention attention(cls.geometry(), *kernels::available().front(), 1);
  EXPECT_EQ(attention.plan({}, {-1, 1}).message(), "page mass of -1 rows in every layer of stride 1");
  EXPECT_EQ(attention.plan({}, {1, 0}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace varve::attention::test
