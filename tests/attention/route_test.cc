// The router: its scores are the true ones, its selections are what those scores say, and a routed row's output is the
// softmax over exactly the pages it was given.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attention/select/choose.h"
#include "attention/select/page_scorer.h"
#include "support.h"

namespace varve::attention::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// --- Choosing

/// Pages of [first, all) that are chosen.
std::vector<int> chosen(const std::vector<std::vector<float>>& log_sums, int k, int first = 0) {
  std::vector<float> flat;
  for (const auto& row : log_sums) flat.insert(flat.end(), row.begin(), row.end());
  const int pages = static_cast<int>(log_sums[0].size());
  std::vector<RankedPage> order(static_cast<size_t>(pages - first));
  std::vector<uint8_t> flags(static_cast<size_t>(pages - first), 7);
  choose_pages({flat.data(), static_cast<int>(log_sums.size()), pages}, first, pages, k, order, flags.data());
  std::vector<int> out;
  for (int p = first; p < pages; ++p) {
    EXPECT_LE(flags[static_cast<size_t>(p - first)], 1);
    if (flags[static_cast<size_t>(p - first)] != 0) out.push_back(p);
  }
  EXPECT_EQ(out.size(), static_cast<size_t>(std::min(k, pages - first))) << "neither duplicates nor gaps";
  return out;
}

TEST(ChoosePages, TakesTheLargestSharesOfAllHeads) {
  EXPECT_EQ(chosen({{1, 5, 3, 4}}, 2), (std::vector<int>{1, 3}));
  // The second head's scores are larger, but flat: it has no say against the first one's sharp choice.
  EXPECT_EQ(chosen({{0, 9, 0, 0}, {70, 70, 70, 70.1f}}, 1), (std::vector<int>{1}));
  EXPECT_EQ(chosen({{0, 9, 0, 0}, {70, 70, 79, 70}}, 2), (std::vector<int>{1, 2}));
}

TEST(ChoosePages, AHeadThatLooksElsewhereHasLittleToSay) {
  // The first head puts nearly everything on page 0, which is no candidate; its favourite among the rest is page 1.
  EXPECT_EQ(chosen({{20, 9, 0, 0}, {0, 1, 1, 2}}, 1, 1), (std::vector<int>{3}));
  EXPECT_EQ(chosen({{0, 9, 0, 0}, {0, 1, 1, 2}}, 1, 1), (std::vector<int>{1}));
}

TEST(ChoosePages, EqualPagesGoByPosition) {
  EXPECT_EQ(chosen({{2, 2, 2, 2}}, 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(chosen({{-kInfinity, -kInfinity, -kInfinity}}, 2), (std::vector<int>{0, 1}));
}

TEST(ChoosePages, LostPagesComeFirstAndDoNotDisturbTheOthers) {
  EXPECT_EQ(chosen({{1, 5, kNaN, 4}, {1, 1, 1, 1}}, 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(chosen({{1, 5, kInfinity, 4}}, 1), (std::vector<int>{2}));
  EXPECT_EQ(chosen({{kNaN, kNaN, kNaN}}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(chosen({{1, -kInfinity, 3}}, 5), (std::vector<int>{0, 1, 2}));
}

// --- Scores

class Route : public testing::TestWithParam<const kernels::Kernels*> {};

LayerFormat with_centre(const std::string& name, Centre centre) {
  return format_of(name, name == "f16" ? Centre::kNone : centre);
}

struct ScoreCase {
  LayerFormat format;
  int q_heads = 3, head_dim = 64, n_rot = 64;
  bool neox = true;
  float softcap = 0;
};

/// Every token of every full page against q.k over the decoded keys in fp64, and the pages' sums.
void check_scores(const ScoreCase& c, uint32_t seed, const kernels::Kernels& kernels) {
  constexpr int kTokens = 300, kPage = 128;
  ClassSpec spec;
  spec.tiers = {{c.format.is_low_rank() ? format_of("int8", Centre::kPost) : c.format}, {c.format}};
  spec.q_heads = c.q_heads;
  spec.head_dim = c.head_dim;
  spec.n_rot = c.n_rot;
  spec.neox = c.neox;
  spec.softcap = c.softcap;
  spec.page_tokens = kPage;
  const TestClass cls(spec);
  TestSequence sequence(cls, kTokens, seed);
  sequence.fill(kTokens, {1});

  SequenceState state;
  state.view = sequence.view(0, kTokens, 0);
  state.tail_start = kTokens / kTileTokens * kTileTokens;
  std::optional<CentreCurve> curve;
  if (c.format.centre == Centre::kRotary) curve.emplace(*cls.rotary(), kPage / kTileTokens);
  LayerStep step;
  step.layer = &cls.layers()[0];
  step.kernels = &kernels;
  step.curve = curve ? &*curve : nullptr;
  const PageTurn turn(*cls.rotary(), kPage / kTileTokens);
  step.turn = &turn;
  step.strip = &cls.strip();
  step.sequences = {&state, 1};
  ThreadScratch scratch;
  ASSERT_TRUE(scratch.reserve(cls.layers(), false, kernels::kMaxGroup, 64));
  PageScorer scorer(step, scratch);
  scorer.begin(0, 0);
  const auto dim = static_cast<size_t>(c.head_dim);
  const float* queries = sequence.rows(0).q.data();
  for (int h = 0; h < c.q_heads; ++h) scorer.add_query(queries + static_cast<size_t>(h) * dim);

  const HeadRows rows = sequence.decoded(0, 0, kTokens);
  std::vector<float> scores(static_cast<size_t>(c.q_heads * kTileTokens)), sums(static_cast<size_t>(c.q_heads));
  for (int page = 0; page < kTokens / kPage; ++page) {
    std::vector<double> total(static_cast<size_t>(c.q_heads), 0.0);
    for (int position = page * kPage; position < (page + 1) * kPage; position += kTileTokens) {
      scorer.score_tile(position, scores.data());
      for (int h = 0; h < c.q_heads; ++h) {
        for (int t = 0; t < kTileTokens; ++t) {
          const float* k = rows.k.data() + static_cast<size_t>(position + t) * dim;
          const float* q = queries + static_cast<size_t>(h) * dim;
          double want = 0, magnitude = 0;
          for (size_t d = 0; d < dim; ++d) {
            want += static_cast<double>(q[d]) * static_cast<double>(k[d]);
            magnitude += std::fabs(static_cast<double>(q[d]) * static_cast<double>(k[d]));
          }
          want *= static_cast<double>(step.layer->scale);
          magnitude *= static_cast<double>(step.layer->scale);
          if (c.softcap > 0) want = static_cast<double>(c.softcap) * std::tanh(want / static_cast<double>(c.softcap));
          total[static_cast<size_t>(h)] += std::exp(want);
          const float got = scores[static_cast<size_t>(h * kTileTokens + t)];
          ASSERT_NEAR(got, want, 2e-4 * magnitude + 1e-5)
              << format::format_name(c.format) << " centre " << format::centre_name(c.format.centre) << " dim "
              << c.head_dim << " head " << h << " position " << position + t << " kernels " << kernels.name;
        }
      }
    }
    scorer.score_pages(page, page + 1, 1, sums.data());
    for (int h = 0; h < c.q_heads; ++h) {
      EXPECT_NEAR(sums[static_cast<size_t>(h)], std::log(total[static_cast<size_t>(h)]),
                  1e-3 * (1 + std::fabs(std::log(total[static_cast<size_t>(h)]))))
          << format::format_name(c.format) << " page " << page << " head " << h;
    }
  }
}

TEST_P(Route, ScoresAreThoseOfTheDecodedKeys) {
  uint32_t seed = 1;
  for (const char* name : {"f16", "fp8", "int8", "k6v4", "k5v4", "k4v3", "k3v3", "k2v2"}) {
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      check_scores({.format = with_centre(name, centre)}, seed++, *GetParam());
    }
  }
  for (const int head_dim : format::kHeadDims) {
    for (const char* name : {"f16", "int8", "k4v3"}) {
      check_scores({.format = with_centre(name, Centre::kRotary),
                    .head_dim = head_dim,
                    .n_rot = head_dim / 2,
                    .neox = head_dim % 64 == 0},
                   seed++, *GetParam());
    }
  }
  for (const char* name : {"lr4+20", "lr32+64/int4", "lr16+0", "lr4+20/rotated", "lr32+64/f16/rotated"}) {
    check_scores({.format = format_of(name)}, seed++, *GetParam());
  }
  check_scores({.format = with_centre("k4v3", Centre::kPost), .softcap = 5}, seed++, *GetParam());
  check_scores({.format = with_centre("k5v4", Centre::kRotary), .q_heads = 16}, seed++, *GetParam());
  check_scores({.format = with_centre("f16", Centre::kNone), .q_heads = 1, .softcap = 20}, seed++, *GetParam());
}

// --- Steps

constexpr int kPage = 64;

/// Two tiers, all three kinds of layers, two KV heads of three query heads.
ClassSpec routed_spec(const RouteOptions& route) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8", Centre::kRotary), format_of("f16"), format_of("fp8")},
                {format_of("k4v3", Centre::kRotary), format_of("f16"), format_of("k5v4", Centre::kPost)}};
  spec.q_heads = 6;
  spec.kv_heads = 2;
  spec.page_tokens = kPage;
  spec.route = route;
  return spec;
}

void expect_same_bits(const StepOutput& a, const StepOutput& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      ASSERT_EQ(std::memcmp(&a[i][j], &b[i][j], sizeof(float)), 0)
          << what << ": layer " << i << " value " << j << ": " << a[i][j] << " against " << b[i][j];
    }
  }
}

struct OneStep {
  StepOutput output;
  RouteStats stats;
  ReadPlan reads;
};

/// A step of a fresh sequence.
OneStep one_step(const ClassSpec& spec, int past, int rows, uint32_t seed, const kernels::Kernels& kernels,
                 int threads = 1, int full_rows = 0) {
  const TestClass cls(spec);
  TestSequence sequence(cls, past + rows, seed, 3.0f);
  sequence.fill(past, {1, 0, 1});
  ClassAttention attention(cls.geometry(), kernels, threads);
  OneStep out;
  out.output = run_step(attention, {{&sequence, past, rows, nullptr, 0, full_rows}}, threads);
  out.stats = attention.route_stats();
  out.reads = attention.stats();
  return out;
}

// No router, a router with nothing to leave out, and one that does not engage are one and the same.
TEST_P(Route, WhereNothingIsLeftOutNoBitChanges) {
  constexpr int kPast = 1379;
  for (const int rows : {1, 3, 90}) {
    const OneStep off = one_step(routed_spec({}), kPast, rows, 7, *GetParam());
    EXPECT_EQ(off.stats.decode_tokens + off.stats.prefill_tokens, 0u);
    const RouteOptions same[] = {{.pages = 100, .window_tokens = 64, .prefill = true},
                                 {.pages = 17, .window_tokens = 1, .prefill = true},  // pages 1 .. 20, 3 in windows
                                 {.pages = 2, .from_tokens = 1500, .window_tokens = 64, .prefill = true},
                                 {.pages = 2, .window_tokens = 1400, .prefill = true}};
    for (const RouteOptions& options : same) {
      const int pages = options.pages == 17 ? 20 : options.pages;
      const OneStep on = one_step(routed_spec({.pages = pages,
                                               .from_tokens = options.from_tokens,
                                               .window_tokens = options.window_tokens,
                                               .prefill = true}),
                                  kPast, rows, 7, *GetParam());
      expect_same_bits(off.output, on.output, std::to_string(rows) + " rows, " + std::to_string(pages) + " pages");
      EXPECT_EQ(on.stats.selections, 0u);
      EXPECT_EQ(on.stats.decode_tokens, on.stats.decode_attended);
      EXPECT_EQ(on.stats.prefill_tokens, on.stats.prefill_attended);
      EXPECT_EQ(on.stats.decode_tokens > 0, rows <= kDecodeRows);
    }
  }
  // Long feeds are routed only where that is asked for.
  const OneStep off = one_step(routed_spec({}), kPast, 90, 7, *GetParam());
  const OneStep decode_only = one_step(routed_spec({.pages = 2, .window_tokens = 64}), kPast, 90, 7, *GetParam());
  expect_same_bits(off.output, decode_only.output, "prefill false");
  // Rows that must see everything do.
  const OneStep full =
      one_step(routed_spec({.pages = 2, .window_tokens = 64, .prefill = true}), kPast, 90, 7, *GetParam(), 1, 90);
  expect_same_bits(off.output, full.output, "full rows");
}

TEST_P(Route, SlidingWindowsAreNeverRouted) {
  for (const int rows : {1, 90}) {
    ClassSpec spec = routed_spec({});
    spec.window = 700;
    const OneStep off = one_step(spec, 1379, rows, 8, *GetParam());
    spec.route = {.pages = 1, .window_tokens = 64, .prefill = true};
    const OneStep on = one_step(spec, 1379, rows, 8, *GetParam());
    expect_same_bits(off.output, on.output, "window");
    EXPECT_EQ(on.stats.decode_tokens + on.stats.prefill_tokens, 0u);
  }
}

/// What the contract says a selection is, in fp64 over decoded keys: pages [1, always_from) ranked by their share of
/// the softmax over these pages, summed over `queries` (row, head) pairs.
std::vector<bool> expected_pages(const TestSequence& sequence, const HeadRows& rows, int ordinal, int kv_head,
                                 const std::vector<int>& positions, int first_new, int always_from, int k) {
  const LayerGeometry& layer = sequence.cls().layers()[static_cast<size_t>(ordinal)];
  const auto dim = static_cast<size_t>(layer.head.head_dim);
  std::vector<double> worth(static_cast<size_t>(always_from), 0.0);
  for (const int position : positions) {
    for (int g = 0; g < layer.group(); ++g) {
      const float* q = sequence.rows(ordinal).q.data() +
                       static_cast<size_t>(position * layer.q_heads + kv_head * layer.group() + g) * dim;
      const int sealed = first_new / kPage;
      std::vector<double> all(static_cast<size_t>(sealed), 0.0);
      for (int t = 0; t < sealed * kPage; ++t) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) {
          score += static_cast<double>(q[d]) * static_cast<double>(rows.k[static_cast<size_t>(t) * dim + d]);
        }
        all[static_cast<size_t>(t / kPage)] += std::exp(score * static_cast<double>(layer.scale));
      }
      const double total = std::accumulate(all.begin(), all.end(), 0.0);
      for (size_t p = 0; p < worth.size(); ++p) worth[p] += all[p] / total;
    }
  }
  std::vector<int> order(static_cast<size_t>(always_from) - 1);
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return worth[static_cast<size_t>(a)] > worth[static_cast<size_t>(b)]; });
  std::vector<bool> attended(static_cast<size_t>(sequence.tokens() / kPage + 1), true);
  for (int p = 1; p < always_from; ++p) attended[static_cast<size_t>(p)] = false;
  for (int i = 0; i < k; ++i) attended[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  return attended;
}

/// |got - want| / |want| of one (row, head) against the softmax over the attended pages alone.
double masked_error(const TestSequence& sequence, const HeadRows& rows, int ordinal, int position, int q_head,
                    const std::vector<bool>& attended, const float* got) {
  int first = 0;
  const std::vector<double> p = sequence.weights(rows, ordinal, position, q_head, &first);
  const auto dim = static_cast<size_t>(sequence.cls().spec().head_dim);
  double total = 0;
  std::vector<double> out(dim, 0.0);
  for (int t = 0; t <= position; ++t) {
    if (!attended[static_cast<size_t>(t / kPage)]) continue;
    total += p[static_cast<size_t>(t)];
    for (size_t d = 0; d < dim; ++d) {
      out[d] += p[static_cast<size_t>(t)] * static_cast<double>(rows.v[static_cast<size_t>(t) * dim + d]);
    }
  }
  double error = 0, norm = 0;
  for (size_t d = 0; d < dim; ++d) {
    error += std::pow(static_cast<double>(got[d]) - out[d] / total, 2);
    norm += std::pow(out[d] / total, 2);
  }
  return std::sqrt(error / norm);
}

constexpr int kPast = 1379, kPages = 4, kWindow = 100;

/// One step of `rows` rows, every row of interest against the softmax over the pages that fp64 chooses.
void check_outputs(const TestClass& cls, int rows, const kernels::Kernels& kernels) {
  TestSequence sequence(cls, kPast + rows, 11, 3.0f);
  sequence.fill(kPast, {1, 0, 1});
  ClassAttention attention(cls.geometry(), kernels, 1);
  const StepOutput output = run_step(attention, {{&sequence, kPast, rows}}, 1);
  EXPECT_GT(attention.route_stats().selections, 0u);
  const int block = rows <= kDecodeRows ? 1 : prefill_block_rows(3);
  for (int i = 0; i < 3; ++i) {
    for (int kv = 0; kv < 2; ++kv) {
      const HeadRows decoded = sequence.decoded(i, kv, kPast);
      for (int first = 0; first < rows;) {
        const int n = std::min(rows - first, block - (kPast + first) % block);
        const int asking = std::min(n, kernels::kMaxGroup / 3);
        std::vector<int> positions;
        for (int r = 1; r <= asking; ++r) positions.push_back(kPast + first + r * n / asking - 1);
        const int always = std::min(kPast / kPage * kPage, kPast + first - kWindow + 1) / kPage;
        const auto attended = expected_pages(sequence, decoded, i, kv, positions, kPast, always, kPages);
        for (const int r : {first, first + n - 1}) {
          for (int g = 0; g < 3; ++g) {
            const int head = kv * 3 + g;
            EXPECT_LE(masked_error(sequence, decoded, i, kPast + r, head, attended,
                                   output[static_cast<size_t>(i)].data() + (r * 6 + head) * 64),
                      1e-3)
                << "layer " << i << " row " << r << " of " << rows << " head " << head;
          }
        }
        first += n;
      }
    }
  }
}

// The output is the softmax over the pages that the scores name, row by row (decode) or block by block (prefill).
TEST_P(Route, OutputsAreTheSoftmaxOverTheBestPages) {
  ClassSpec spec = routed_spec({.pages = kPages, .window_tokens = kWindow, .prefill = true});
  const TestClass codes(spec);
  spec.tiers[1] = {format_of("lr8+16"), format_of("f16"), format_of("lr16+8/int4/rotated")};
  const TestClass blocks(spec);
  for (const int rows : {1, 3, 90}) check_outputs(codes, rows, *GetParam());
  for (const int rows : {1, 90}) check_outputs(blocks, rows, *GetParam());
}

// A key that answers the query is found wherever it is, in every format, with one page to choose.
TEST_P(Route, APlantedKeyIsAlwaysFound) {
  constexpr int kPast = 700;
  for (const char* name : {"f16", "fp8", "int8", "k5v4", "k4v3", "k3v2", "k2v2"}) {
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      ClassSpec spec;
      spec.tiers = {{with_centre(name, centre)}};
      spec.q_heads = 3;
      spec.page_tokens = kPage;
      spec.route = {.pages = 1, .window_tokens = 64};
      const TestClass cls(spec);
      for (int planted = kPage + 3; planted < 9 * kPage; planted += 77) {
        TestSequence sequence(cls, kPast + 1, static_cast<uint32_t>(planted), 0.0f);
        float* k = sequence.rows(0).k.data() + planted * 64;
        float* v = sequence.rows(0).v.data() + planted * 64;
        const float* q = sequence.rows(0).q.data() + (kPast * 3 + 1) * 64;  // one of the three heads asks for it
        for (int d = 0; d < 64; ++d) {
          k[d] = 3 * q[d];
          v[d] = 10;
        }
        sequence.fill(kPast, {0});
        ClassAttention attention(cls.geometry(), *GetParam(), 1);
        const StepOutput output = run_step(attention, {{&sequence, kPast, 1}}, 1);
        EXPECT_EQ(attention.route_stats().selections, 1u);
        double mean = 0;
        for (int d = 0; d < 64; ++d) mean += static_cast<double>(output[0][static_cast<size_t>(64 + d)]) / 64;
        EXPECT_GT(mean, 8.0) << name << " centre " << format::centre_name(centre) << " at " << planted;
      }
    }
  }
}

TEST_P(Route, ALostKeyShowsAsItDoesWithoutRouter) {
  constexpr int kPast = 700;
  for (const char* name : {"f16", "int8", "k4v3"}) {
    for (const float poison : {kNaN, kInfinity}) {
      for (const int rows : {1, 40}) {
        ClassSpec spec;
        spec.tiers = {{format_of(name)}};
        spec.q_heads = 4;
        spec.kv_heads = 2;
        spec.page_tokens = kPage;
        spec.route = {.pages = 1, .window_tokens = 64, .prefill = true};
        const TestClass cls(spec);
        TestSequence sequence(cls, kPast + rows, 3, 1.0f);
        sequence.rows(0).k[250 * 2 * 64 + 64 + 5] = poison;  // KV head 1 alone
        sequence.fill(kPast, {0});
        ClassAttention attention(cls.geometry(), *GetParam(), 1);
        const StepOutput output = run_step(attention, {{&sequence, kPast, rows}}, 1);
        ClassGeometry plain = cls.geometry();
        plain.route = {};
        ClassAttention full(plain, *GetParam(), 1);
        const StepOutput all = run_step(full, {{&sequence, kPast, rows}}, 1);
        size_t lost_rows = 0;
        for (int r = 0; r < rows; ++r) {
          for (int h = 0; h < 4; ++h) {
            const auto finite = [&](const StepOutput& step) {
              const float* out = step[0].data() + (r * 4 + h) * 64;
              return std::all_of(out, out + 64, [](float x) { return std::isfinite(x); });
            };
            lost_rows += finite(all) ? 0 : 1;
            EXPECT_EQ(finite(output), finite(all))
                << name << " " << poison << " row " << r << " of " << rows << " head " << h;
          }
        }
        EXPECT_TRUE(lost_rows > 0 || !std::isnan(poison));  // q times infinity may be -infinity: no weight at all
        // A lost query loses its head and nothing else.
        TestSequence clean(cls, kPast + rows, 3, 1.0f);
        clean.rows(0).q[static_cast<size_t>(kPast + rows - 1) * 4 * 64 + 7] = poison;
        clean.fill(kPast, {0});
        const StepOutput lost = run_step(attention, {{&clean, kPast, rows}}, 1);
        for (int h = 0; h < 4; ++h) {
          const float* out = lost[0].data() + ((rows - 1) * 4 + h) * 64;
          EXPECT_EQ(std::all_of(out, out + 64, [](float x) { return std::isfinite(x); }), h > 0) << "head " << h;
        }
      }
    }
  }
}

// --- Determinism, neighbours, memory

struct RoutedBatch {
  explicit RoutedBatch(const TestClass& cls) {
    for (size_t i = 0; i < 3; ++i) {
      sequences.push_back(std::make_unique<TestSequence>(cls, kPast[i] + kRows[i], static_cast<uint32_t>(50 + i)));
      sequences.back()->fill(kPast[i], {1, 0, 1});
    }
  }
  Part part(size_t i) { return {sequences[i].get(), kPast[i], kRows[i]}; }

  static constexpr int kPast[] = {1379, 1110, 1000};
  static constexpr int kRows[] = {1, 3, 90};
  std::vector<std::unique_ptr<TestSequence>> sequences;
};

TEST_P(Route, NeitherThreadsNorNeighboursMatter) {
  const TestClass cls(routed_spec({.pages = 3, .window_tokens = 100, .prefill = true}));
  StepOutput first;
  for (const int threads : {1, 2, 3, 3}) {
    RoutedBatch batch(cls);
    ClassAttention attention(cls.geometry(), *GetParam(), 3);
    const StepOutput output = run_step(attention, {batch.part(0), batch.part(1), batch.part(2)}, threads);
    if (first.empty()) {
      first = output;
    } else {
      expect_same_bits(first, output, std::to_string(threads) + " threads");
    }
  }
  size_t row = 0;
  for (size_t s = 0; s < 3; ++s) {
    RoutedBatch alone(cls);
    ClassAttention attention(cls.geometry(), *GetParam(), 1);
    const StepOutput solo = run_step(attention, {alone.part(s)}, 1);
    StepOutput part;
    const size_t width = 6 * 64, rows = static_cast<size_t>(RoutedBatch::kRows[s]);
    for (const auto& layer : first) {
      const auto begin = layer.begin() + static_cast<ptrdiff_t>(row * width);
      part.emplace_back(begin, begin + static_cast<ptrdiff_t>(rows * width));
    }
    expect_same_bits(part, solo, "sequence " + std::to_string(s));
    row += rows;
  }
}

// Routed rows choose for themselves and share no tiles; rows that see all still do.
TEST_P(Route, RoutedRowsDoNotShareButOthersDo) {
  for (const bool engaged : {false, true}) {
    const TestClass cls(routed_spec({.pages = 3, .from_tokens = engaged ? 0 : 5000, .window_tokens = 64}));
    TestSequence a(cls, 1101, 1), b(cls, 1101, 2), alone(cls, 1101, 2);
    b.copy_rows(a, 1024);
    alone.copy_rows(a, 1024);
    a.fill(1100, {1});
    b.fill(1100, {1});
    alone.fill(1100, {1});
    ClassAttention attention(cls.geometry(), *GetParam(), 2), single(cls.geometry(), *GetParam(), 1);
    const StepOutput both = run_step(attention, {{&a, 1100, 1}, {&b, 1100, 1, &a, 1024}}, 2);
    EXPECT_EQ(attention.stats().shared_items > 0, !engaged);
    EXPECT_EQ(attention.stats().tiles_read < attention.stats().tiles_requested, !engaged);
    const StepOutput solo = run_step(single, {{&alone, 1100, 1}}, 1);
    StepOutput part;
    for (const auto& layer : both) part.emplace_back(layer.begin() + 6 * 64, layer.end());
    expect_same_bits(part, solo, engaged ? "routed" : "not routed");
  }
}

TEST_P(Route, ASelectionServesAsManyStepsAsAsked) {
  const TestClass cls(routed_spec({.pages = 3, .window_tokens = 100, .reroute_steps = 3}));
  TestSequence sequence(cls, 1120, 5);
  sequence.fill(1100, {1, 0});
  ClassAttention attention(cls.geometry(), *GetParam(), 2);
  RouteMemory memory;
  std::vector<uint64_t> made, reused;
  std::vector<std::vector<std::vector<uint8_t>>> chosen_pages;
  for (int i = 0; i < 7; ++i) {
    run_step(attention, {{&sequence, 1100 + i, 1, nullptr, 0, 0, &memory}}, 2);
    made.push_back(attention.route_stats().selections);
    reused.push_back(attention.route_stats().reused);
    chosen_pages.push_back(memory.chosen);
  }
  EXPECT_EQ(made, (std::vector<uint64_t>{6, 0, 0, 6, 0, 0, 6}));
  EXPECT_EQ(reused, (std::vector<uint64_t>{0, 6, 6, 0, 6, 6, 0}));
  EXPECT_EQ(chosen_pages[0], chosen_pages[2]);
  for (const auto& layer : chosen_pages[0]) {
    EXPECT_EQ(std::count(layer.begin(), layer.end(), 1), 2 * (3 + 1)) << "three pages and the first, per KV head";
  }
  // A gap, a feed of several rows or another sequence's step between: the next selection is a new one.
  run_step(attention, {{&sequence, 1109, 1, nullptr, 0, 0, &memory}}, 2);
  EXPECT_EQ(attention.route_stats().selections, 6u);
  run_step(attention, {{&sequence, 1110, 1, nullptr, 0, 0, &memory}}, 2);
  EXPECT_EQ(attention.route_stats().reused, 6u);
  run_step(attention, {{&sequence, 1111, 2, nullptr, 0, 0, &memory}}, 2);
  EXPECT_EQ(attention.route_stats().selections, 12u);
  run_step(attention, {{&sequence, 1113, 1, nullptr, 0, 0, &memory}}, 2);
  EXPECT_EQ(attention.route_stats().selections, 6u);
}

// A selection that is taken over gives the bits of a step that would have made it, and another sequence's memory is
// never consulted.
TEST_P(Route, ATakenOverSelectionIsTheOldOne) {
  const TestClass cls(routed_spec({.pages = 3, .window_tokens = 100, .reroute_steps = 2}));
  TestSequence a(cls, 1110, 5), b(cls, 1110, 6);
  a.fill(1100, {1});
  b.fill(1100, {1});
  // Row 1101 asks what row 1100 asked: its own selection would be the same.
  for (int i = 0; i < 3; ++i) {
    std::vector<float>& q = a.rows(i).q;
    std::copy_n(q.begin() + 1100 * 6 * 64, 6 * 64, q.begin() + 1101 * 6 * 64);
  }
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  RouteMemory of_a, of_b;
  run_step(attention, {{&a, 1100, 1, nullptr, 0, 0, &of_a}}, 1);
  run_step(attention, {{&b, 1100, 1, nullptr, 0, 0, &of_b}}, 1);
  const StepOutput stale = run_step(attention, {{&a, 1101, 1, nullptr, 0, 0, &of_a}}, 1);
  EXPECT_EQ(attention.route_stats().reused, 6u);
  TestSequence again(cls, 1110, 5);
  again.fill(1100, {1});
  for (int i = 0; i < 3; ++i) again.rows(i).q = a.rows(i).q;
  run_step(attention, {{&again, 1100, 1}}, 1);
  const StepOutput fresh = run_step(attention, {{&again, 1101, 1}}, 1);
  EXPECT_EQ(attention.route_stats().selections, 6u);
  expect_same_bits(stale, fresh, "stale");
}

TEST_P(Route, CountsAreExact) {
  constexpr int kPast = 1379;  // 21 sealed pages; a window of 100 tokens starts in page 20, the tail in page 21
  const OneStep one = one_step(routed_spec({.pages = 3, .window_tokens = 100}), kPast, 1, 7, *GetParam());
  EXPECT_EQ(one.stats.selections, 6u);  // layers x KV heads
  EXPECT_EQ(one.stats.pages_scored, 6u * 21);
  EXPECT_EQ(one.stats.pages_skipped, 6u * 16);
  EXPECT_EQ(one.stats.tiles_skipped, 6u * 16);
  EXPECT_EQ(one.stats.decode_tokens, 6u * 1380);
  EXPECT_EQ(one.stats.decode_attended, 6u * (1380 - 16 * kPage));
  EXPECT_EQ(one.stats.prefill_tokens, 0u);
  EXPECT_EQ(one.reads.tiles_requested, 6u * (22 - 16));
}

TEST_P(Route, OptionsThatMakeNoSenseAreRefused) {
  const auto status = [&](const RouteOptions& options) {
    const TestClass cls(routed_spec(options));
    return check(cls.geometry());
  };
  EXPECT_TRUE(status({.pages = 3}).ok());
  EXPECT_NE(status({.pages = -3}).message().find("-3"), std::string::npos);
  EXPECT_NE(status({.pages = 3, .from_tokens = -7}).message().find("-7"), std::string::npos);
  EXPECT_NE(status({.pages = 3, .window_tokens = 0}).message().find("window 0"), std::string::npos);
  EXPECT_NE(status({.pages = 3, .reroute_steps = 0}).message().find("every 0"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Route, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
