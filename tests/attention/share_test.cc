// Sequences whose views hold the same pages: read once, with the bits of each sequence alone.

#include "attention/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "support.h"

namespace varve::attention::test {
namespace {

class Share : public testing::TestWithParam<const kernels::Kernels*> {
 protected:
  static bool slow() { return std::string(GetParam()->name) == "generic"; }
};

/// A member of a batch: its first `prefix` tokens are those of the member `of`, and so are the pages that hold them.
struct Member {
  int past = 0;
  int rows = 1;
  int prefix = 0;
  size_t of = 0;
};

/// Sequences on common prefixes, freshly built. Every sequence also has its own copy of all its pages.
struct Family {
  Family(const TestClass& cls, const std::vector<Member>& members, uint32_t seed, const std::vector<int>& tier_of)
      : members(members) {
    for (size_t i = 0; i < members.size(); ++i) {
      const Member& m = members[i];
      sequences.push_back(std::make_unique<TestSequence>(cls, m.past + m.rows, seed + static_cast<uint32_t>(i),
                                                         i % 2 == 0 ? 1.0f : 4.0f));
      if (m.prefix > 0) sequences.back()->copy_rows(*sequences[m.of], m.prefix);
      sequences.back()->fill(m.past, tier_of);
      if (cls.spec().window > 0) sequences.back()->drop_below(m.past - cls.spec().window + 1);
    }
  }
  Part alone(size_t i) { return {sequences[i].get(), members[i].past, members[i].rows}; }
  std::vector<Part> together() {
    std::vector<Part> parts;
    for (size_t i = 0; i < members.size(); ++i) {
      Part part = alone(i);
      part.prefix = sequences[members[i].of].get();
      part.prefix_tokens = members[i].prefix;
      parts.push_back(part);
    }
    return parts;
  }

  std::vector<Member> members;
  std::vector<std::unique_ptr<TestSequence>> sequences;
};

/// The batch over shared pages against every sequence alone over its own copy: outputs and page mass, bit by bit.
/// Returns what the batch planned.
ReadPlan expect_equal_to_solo(const ClassSpec& spec, const std::vector<Member>& members, uint32_t seed,
                              const std::vector<int>& tier_of, const kernels::Kernels& kernels) {
  const TestClass cls(spec);
  constexpr MassRequest kMass{2, 1};
  Family family(cls, members, seed, tier_of), apart(cls, members, seed, tier_of);
  ClassAttention attention(cls.geometry(), kernels, 2);
  const StepOutput batch = run_step(attention, family.together(), 2, kMass);
  const size_t width = static_cast<size_t>(spec.q_heads * spec.head_dim);
  size_t row = 0;
  for (size_t s = 0; s < members.size(); ++s) {
    ClassAttention solo(cls.geometry(), kernels, 1);
    const StepOutput alone = run_step(solo, {apart.alone(s)}, 1, kMass);
    const std::string what = std::string(kernels.name) + " " + format::format_name(spec.tiers.back()[0]) + " heads " +
                             std::to_string(spec.q_heads) + "/" + std::to_string(spec.kv_heads) + " dim " +
                             std::to_string(spec.head_dim) + " page " + std::to_string(spec.page_tokens) + " window " +
                             std::to_string(spec.window) + " seed " + std::to_string(seed) + " sequence " +
                             std::to_string(s) + " of " + std::to_string(members.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      for (size_t j = 0; j < alone[i].size(); ++j) {
        if (std::memcmp(&batch[i][row * width + j], &alone[i][j], sizeof(float)) == 0) continue;
        ADD_FAILURE() << what << " layer " << i << " row " << j / width << " head "
                      << j % width / static_cast<size_t>(spec.head_dim) << ": " << batch[i][row * width + j]
                      << " against " << alone[i][j];
        break;
      }
    }
    const std::span<const float> mass = attention.page_mass(s), own = solo.page_mass(0);
    EXPECT_TRUE(std::equal(mass.begin(), mass.end(), own.begin(), own.end())) << what << ": page mass";
    row += static_cast<size_t>(members[s].rows);
  }
  return attention.stats();
}

/// Sequences that share `prefix` tokens of the first and go on with lengths of their own.
std::vector<Member> on_one_prefix(int sequences, int prefix) {
  std::vector<Member> members;
  for (int i = 0; i < sequences; ++i)
    members.push_back({prefix + 37 * i + (i == 3 ? 700 : 0), 1, i == 0 ? 0 : prefix, 0});
  return members;
}

TEST_P(Share, EqualsSoloForGroupsAndLengths) {
  uint32_t seed = 10;
  for (const int sequences : {2, 3, 5}) {
    for (int group = 1; group <= 9; ++group) {
      if (slow() && (group + sequences) % 4 != 0) continue;
      ClassSpec spec;
      const LayerFormat int8 = format_of("int8", Centre::kRotary);
      spec.tiers = {{int8, format_of("f16"), format_of("fp8"), int8, int8},
                    {format_of("k4v3", Centre::kRotary), format_of("f16"), format_of("k5v4", Centre::kPost),
                     format_of("lr24+20"), format_of("lr16+30/rotated")}};
      spec.kv_heads = 2;
      spec.q_heads = 2 * group;
      spec.page_tokens = 128;
      constexpr int kPrefixes[] = {128, 512, 640, 1152};
      const int prefix = slow() ? 640 : kPrefixes[seed % 4];
      const ReadPlan reads =
          expect_equal_to_solo(spec, on_one_prefix(sequences, prefix), ++seed, {1, 0, 1}, *GetParam());
      EXPECT_GT(reads.shared_items, 0u);
      EXPECT_LT(reads.tiles_read, reads.tiles_requested);
    }
  }
}

TEST_P(Share, EqualsSoloForFormatsAndCentres) {
  uint32_t seed = 300;
  for (const char* name : {"f16", "fp8", "int8", "k8v4", "k6v4", "k5v3", "k4v3", "k3v2", "k2v2"}) {
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      if (slow() && centre == Centre::kPost) continue;
      ClassSpec spec;
      const auto format = [&](const char* n) { return format_of(n, std::string(n) == "f16" ? Centre::kNone : centre); };
      spec.tiers = {{format("int8")}, {format(name)}, {format("f16")}};
      constexpr int kDims[] = {64, 80, 128, 256};
      spec.head_dim = slow() ? 64 : kDims[seed % 4];
      spec.n_rot = spec.head_dim;
      spec.q_heads = 5;
      spec.page_tokens = 64;
      spec.softcap = seed % 5 == 0 ? 30.0f : 0.0f;
      spec.sink_tokens = static_cast<int>(seed % 17);
      expect_equal_to_solo(spec, on_one_prefix(slow() ? 2 : 4, 704), ++seed, {1, 0, 2, 1}, *GetParam());
    }
  }
}

// Windows that cut into the shared part keep their cut to themselves; layers without sharing change nothing.
TEST_P(Share, EqualsSoloUnderWindows) {
  for (const int window : {64, 400, 1100}) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8", Centre::kRotary)}, {format_of("k4v3", Centre::kRotary)}};
    spec.q_heads = 6;
    spec.kv_heads = 2;
    spec.page_tokens = 128;
    spec.window = window;
    expect_equal_to_solo(spec, {{1280}, {1300, 1, 1280, 0}, {1500, 1, 1280, 0}}, 70, {1, 0}, *GetParam());
  }
}

// A prefix inside a prefix, two families, a stranger, rows of one sequence, and a prefill in between.
TEST_P(Share, EqualsSoloInAMixedBatch) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8", Centre::kRotary), format_of("f16")},
                {format_of("k4v3", Centre::kRotary), format_of("k3v3", Centre::kRotary)}};
  spec.q_heads = 3;
  spec.page_tokens = 128;
  const std::vector<Member> members = {{1000}, {1010, 1, 896, 0}, {700, 1, 384, 0}, {900}, {950, 3, 768, 3},
                                       {80},   {600, 20, 512, 0}, {500, 1, 384, 0}};
  const ReadPlan reads = expect_equal_to_solo(spec, members, 90, {1, 0, 1}, *GetParam());
  EXPECT_LT(reads.tiles_read, reads.tiles_requested);
}

// More heads than one item takes.
TEST_P(Share, EqualsSoloWhenItemsAreFull) {
  if (slow()) return;
  for (const int group : {4, 14, 16}) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8")}, {format_of("k4v3")}};
    spec.q_heads = group;
    spec.page_tokens = 128;
    const ReadPlan reads = expect_equal_to_solo(spec, on_one_prefix(18, 512), 40, {1}, *GetParam());
    EXPECT_EQ(reads.shared_items,
              static_cast<size_t>((18 * group + kMaxJointHeads - 1) / (kMaxJointHeads / group * group)));
  }
}

TEST_P(Share, AMembersNanStaysItsOwn) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8", Centre::kRotary)}, {format_of("k4v3", Centre::kRotary)}};
  spec.q_heads = 3;
  spec.page_tokens = 128;
  const TestClass cls(spec);
  const std::vector<Member> members = on_one_prefix(3, 640);
  Family family(cls, members, 5, {1}), apart(cls, members, 5, {1});
  for (Family* f : {&family, &apart}) {
    f->sequences[1]->rows(0).q[static_cast<size_t>(members[1].past * 3 + 1) * 64 + 7] =
        std::numeric_limits<float>::quiet_NaN();
  }
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  const StepOutput batch = run_step(attention, family.together(), 1);
  for (size_t s = 0; s < 3; ++s) {
    const StepOutput alone = run_step(attention, {apart.alone(s)}, 1);
    for (size_t h = 0; h < 3; ++h) {
      const float* x = &batch[0][(s * 3 + h) * 64];
      if (s == 1 && h == 1) {
        EXPECT_TRUE(std::all_of(x, x + 64, [](float v) { return std::isnan(v); }));
      } else {
        EXPECT_EQ(std::memcmp(x, &alone[0][h * 64], 64 * sizeof(float)), 0) << "sequence " << s << " head " << h;
      }
    }
  }
}

// What all of this rests on: a head's numbers do not depend on the heads beside it in a call.
TEST_P(Share, KernelsTreatHeadsApart) {
  const kernels::Kernels& k = *GetParam();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int dim : {64, 80, 256}) {
    constexpr int kHeads = kernels::kMaxGroup;
    const size_t n = static_cast<size_t>(dim);
    std::vector<float> rows(64 * n), q(kHeads * n), p(kHeads * 64), steps(kHeads);
    for (auto* x : {&rows, &q, &p}) {
      for (float& v : *x) v = normal(random);
    }
    std::vector<int16_t> codes(kHeads * n);
    std::vector<int32_t> sums(kHeads);
    k.quantize_query(q.data(), kHeads, dim, codes.data(), steps.data(), sums.data());
    const auto query = [&](int head, int heads) {
      const size_t at = static_cast<size_t>(head) * n;
      return kernels::QueryGroup{heads, dim, q.data() + at, codes.data() + at, steps.data() + head,
                                 sums.data() + head};
    };
    /// run(first head, heads, result row of the first head): all heads at once against groups of every size.
    const auto expect_apart = [&](size_t width, const auto& run, const std::string& what) {
      std::vector<float> whole(kHeads * width, 0.5f);
      run(0, kHeads, whole.data());
      for (int group = 1; group < kHeads; ++group) {
        std::vector<float> parts(kHeads * width, 0.5f);
        for (int h = 0; h < kHeads; h += group) {
          run(h, std::min(group, kHeads - h), parts.data() + static_cast<size_t>(h) * width);
        }
        EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0)
            << k.name << " " << what << " dim " << dim << " groups of " << group;
      }
    };
    std::vector<uint8_t> tile(64 * n * 2 + 512);
    std::vector<float> copy;
    for (size_t codec = 0; codec < kernels::kKCodecs; ++codec) {
      copy = rows;
      k.k_encode[codec](copy.data(), dim, {}, tile.data());
      expect_apart(
          64, [&](int h, int heads, float* out) { k.k_scores[codec](tile.data(), query(h, heads), out); },
          "K codec " + std::to_string(codec));
    }
    for (size_t codec = 0; codec < kernels::kVCodecs; ++codec) {
      copy = rows;
      k.v_encode[codec](copy.data(), dim, {}, tile.data());
      expect_apart(
          n,
          [&](int h, int heads, float* out) { k.v_accumulate[codec](tile.data(), dim, heads, p.data() + h * 64, out); },
          "V codec " + std::to_string(codec));
    }
    std::vector<uint16_t> halves(rows.size());
    k.f32_to_f16(rows.data(), halves.data(), rows.size());
    for (const int tokens : {1, 5, 60, 64}) {
      expect_apart(
          64, [&](int h, int heads, float* out) { k.f16_scores(halves.data(), tokens, query(h, heads), 64, out); },
          "f16 scores");
      expect_apart(
          n,
          [&](int h, int heads, float* out) {
            k.f16_accumulate(halves.data(), tokens, dim, heads, 64, p.data() + h * 64, out);
          },
          "f16 values");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Share, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

// Four sequences on one prefix of 1,024 tokens: 16 tiles, read once for each of two KV heads. Beyond it, each reads its
// own: 1, 1, 2 and 13 tiles.
TEST(ShareCounts, OnePrefixIsReadOnce) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}, {format_of("k4v3")}};
  spec.q_heads = 6;
  spec.kv_heads = 2;
  spec.page_tokens = 128;
  const TestClass cls(spec);
  Family family(cls, on_one_prefix(4, 1024), 5, {1});
  ClassAttention attention(cls.geometry(), *kernels::available().front(), 1);
  run_step(attention, family.together(), 1);
  const ReadPlan reads = attention.stats();
  EXPECT_EQ(reads.tiles_requested, 2u * (4 * 16 + 1 + 1 + 2 + 13));
  EXPECT_EQ(reads.tiles_read, 2u * (16 + 1 + 1 + 2 + 13));
  EXPECT_EQ(reads.shared_items, 2u * 2);  // two cuts of 512 tokens
  run_step(attention, {family.alone(0)}, 1);
  EXPECT_EQ(attention.stats().shared_items, 0u);
  EXPECT_EQ(attention.stats().tiles_read, attention.stats().tiles_requested);
}

// A prefix that ends inside a cut: its part of that cut is read once, too.
TEST(ShareCounts, ARaggedEndIsReadOnce) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}, {format_of("k4v3")}};
  spec.page_tokens = 128;
  const TestClass cls(spec);
  Family family(cls, on_one_prefix(3, 640), 5, {1});
  ClassAttention attention(cls.geometry(), *kernels::available().front(), 1);
  run_step(attention, family.together(), 1);
  EXPECT_EQ(attention.stats().tiles_requested, 3u * 10 + 1 + 1 + 2);
  EXPECT_EQ(attention.stats().tiles_read, 10u + 1 + 1 + 2);
  EXPECT_EQ(attention.stats().shared_items, 2u);
}

// Equal content in different slots is not the same page, a slot in another layout neither.
TEST(ShareCounts, OnlyTheSameSlotsAreShared) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}, {format_of("k4v3")}, {format_of("k4v3")}};
  spec.page_tokens = 128;
  const TestClass cls(spec);
  Family family(cls, on_one_prefix(2, 640), 5, {1});
  ClassAttention attention(cls.geometry(), *kernels::available().front(), 1);
  std::vector<SequenceView> views = {family.sequences[0]->view(0, 640, 1), family.sequences[1]->view(1, 677, 1)};
  ASSERT_TRUE(attention.plan(views).ok());
  EXPECT_EQ(attention.stats().shared_items, 0u);
  for (size_t p = 0; p < 3; ++p) views[1].pages[p].slot = views[0].pages[p].slot;
  views[1].pages[2].layout = &cls.slot(2);
  ASSERT_TRUE(attention.plan(views).ok());
  EXPECT_EQ(attention.stats().shared_items, 1u);
  EXPECT_EQ(attention.stats().tiles_requested - attention.stats().tiles_read, 4u);  // two pages of two tiles
}

// Whatever is joined, every (row, KV head, cut) is served by exactly one item.
TEST(ShareCounts, EveryCutIsServedOnce) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}};
  spec.kv_heads = 2;
  spec.page_tokens = 128;
  for (const int window : {0, 300, 700}) {
    spec.window = window;
    const TestClass cls(spec);
    Family family(cls, {{1000}, {1010, 1, 896, 0}, {700, 4, 384, 0}, {900}, {950, 3, 768, 3}, {80}}, 5, {0});
    std::vector<SequenceState> states;
    std::vector<SequenceRows> rows;
    for (size_t s = 0; s < family.members.size(); ++s) {
      const Member& m = family.members[s];
      SequenceState state;
      state.view = family.sequences[s]->view(0, m.past, m.rows);
      state.tail_start = m.past / 64 * 64;
      const std::vector<PageView> theirs = family.sequences[m.of]->view(0, family.members[m.of].past, 1).pages;
      for (PageView& page : state.view.pages) {
        for (const PageView& other : theirs) {
          if (other.start == page.start && page.start + 128 <= m.prefix) page = other;
        }
      }
      states.push_back(state);
      rows.push_back({m.rows, m.past});
    }
    Schedule schedule = make_schedule({2, 1, window}, rows);
    join_items(states, &schedule);
    std::map<std::pair<int, int>, int> served;  // (unit, absolute cut)
    for (const Item& item : schedule.items) {
      const Unit& first = schedule.units[static_cast<size_t>(item.unit)];
      for (int u = 0; u < item.units; ++u) {
        const int unit = item.units == 1 ? item.unit : schedule.joint_units[static_cast<size_t>(item.first_unit + u)];
        EXPECT_EQ(schedule.units[static_cast<size_t>(unit)].kv_head, first.kv_head);
        ++served[{unit, first.first_cut + item.cut}];
      }
    }
    size_t cuts = 0;
    for (size_t u = 0; u < schedule.units.size(); ++u) {
      const Unit& unit = schedule.units[u];
      cuts += static_cast<size_t>(unit.cuts);
      for (int c = 0; c < unit.cuts; ++c) EXPECT_EQ((served[{static_cast<int>(u), unit.first_cut + c}]), 1);
    }
    EXPECT_EQ(served.size(), cuts);
    EXPECT_GT(schedule.reads.shared_items, 0u) << window;
  }
}

}  // namespace
}  // namespace varve::attention::test
