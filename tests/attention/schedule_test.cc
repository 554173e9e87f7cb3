// Every (row, KV head) meets every position it attends to exactly once, whatever the step looks like.

#include "attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace varve::attention {
namespace {

/// How often each (sequence, head, row) meets each position, masks applied as the items apply them.
void expect_exact_cover(const Shape& shape, const std::vector<SequenceRows>& sequences) {
  const Schedule schedule = make_schedule(shape, sequences);
  std::map<std::tuple<int, int, int>, std::vector<int>> met;
  for (const Item& item : schedule.items) {
    const Unit& unit = schedule.units[static_cast<size_t>(item.unit)];
    ASSERT_GE(item.cut, 0);
    ASSERT_LT(item.cut, unit.cuts);
    const int begin = (unit.first_cut + item.cut) * unit.cut_tokens;
    for (int r = 0; r < unit.rows; ++r) {
      const int row = unit.first_row + r;
      const int position = sequences[static_cast<size_t>(unit.sequence)].past + row;
      std::vector<int>& counts = met[{unit.sequence, unit.kv_head, row}];
      counts.resize(static_cast<size_t>(position + 1));
      for (int key = std::max(begin, first_key(position, shape.window));
           key < std::min(begin + unit.cut_tokens, position + 1); ++key) {
        ++counts[static_cast<size_t>(key)];
      }
    }
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int row = 0; row < sequences[s].rows; ++row) {
        const int position = sequences[s].past + row;
        const std::vector<int>& counts = met[{static_cast<int>(s), head, row}];
        ASSERT_EQ(counts.size(), static_cast<size_t>(position + 1));
        for (int key = 0; key <= position; ++key) {
          ASSERT_EQ(counts[static_cast<size_t>(key)], key >= first_key(position, shape.window) ? 1 : 0)
              << "sequence " << s << " head " << head << " row " << row << " key " << key;
        }
      }
    }
  }
}

TEST(Schedule, CoversEveryKeyOnce) {
  const std::vector<SequenceRows> sequences = {{1, 0}, {1, 511}, {4, 510}, {5, 1020}, {0, 7}, {200, 3000}, {513, 33}};
  for (const int window : {0, 1, 64, 512, 700}) {
    for (const int group : {1, 3, 8, 16}) expect_exact_cover({2, group, window}, sequences);
  }
}

TEST(Schedule, SlotsDoNotOverlap) {
  const Shape shape{2, 3, 0};
  const Schedule schedule = make_schedule(shape, std::vector<SequenceRows>{{1, 2000}, {70, 1000}, {3, 0}});
  std::vector<int> used(schedule.slots);
  for (const Unit& unit : schedule.units) {
    for (int i = 0; i < unit.cuts * unit.rows * shape.group; ++i) ++used.at(unit.slot + static_cast<size_t>(i));
  }
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int n) { return n == 1; }));
}

TEST(Schedule, MassOfScoredRowsDoesNotOverlap) {
  const std::vector<SequenceRows> sequences = {{1, 2000, 1}, {70, 1000, 9}, {3, 0, 2}, {200, 5000, 200}, {4, 100, 0}};
  for (const int window : {0, 100, 700}) {
    const Shape shape{2, 3, window};
    const Schedule schedule = make_schedule(shape, sequences);
    std::vector<int> used(schedule.mass_floats);
    std::map<int, int> scored;
    for (const Unit& unit : schedule.units) {
      scored[unit.sequence] += unit.scored;
      const int sides = unit.decode ? 1 : 2;
      for (int i = 0; i < unit.scored * shape.group * sides; ++i) {
        std::vector<int> met(static_cast<size_t>(unit.tiles));
        for (int c = 0; c < unit.cuts; ++c) {
          for (int t = unit.tiles_of_cut(c).begin; t < unit.tiles_of_cut(c).end; ++t) {
            ++met.at(static_cast<size_t>(t));
            ++used.at(unit.mass_row(i) + static_cast<size_t>(t));
          }
        }
        EXPECT_TRUE(std::all_of(met.begin(), met.end(), [](int n) { return n == 1; }));
      }
    }
    EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int n) { return n == 1; }));
    for (size_t s = 0; s < sequences.size(); ++s) EXPECT_EQ(scored[static_cast<int>(s)], 2 * sequences[s].scored);
  }
}

TEST(Schedule, CutsIgnoreNeighbours) {
  const SequenceRows mine{1, 5000};
  const Schedule alone = make_schedule({1, 3, 0}, std::vector<SequenceRows>{mine});
  const Schedule busy = make_schedule({1, 3, 0}, std::vector<SequenceRows>{{100, 40}, mine, {1, 9}});
  const auto find = [](const Schedule& s, int sequence) {
    return *std::find_if(s.units.begin(), s.units.end(), [&](const Unit& u) { return u.sequence == sequence; });
  };
  EXPECT_EQ(find(alone, 0).cuts, find(busy, 1).cuts);
  EXPECT_EQ(find(alone, 0).cut_tokens, find(busy, 1).cut_tokens);
  EXPECT_EQ(find(alone, 0).first_cut, find(busy, 1).first_cut);
}

TEST(Schedule, PrefillPartialsStaySmall) {
  // Slots of a chunk over a long past: at most one cut per 64 rows' worth of it, plus the ragged ends.
  const Schedule schedule = make_schedule({1, 1, 0}, std::vector<SequenceRows>{{512, 100000}});
  EXPECT_LE(schedule.slots, 512u * (100512 / (64 * 512) + 2));
}

}  // namespace
}  // namespace varve::attention
