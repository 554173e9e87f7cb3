#include "attention/schedule.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "format/codec.h"

namespace varve::attention {
namespace {

void add_unit(const Shape& shape, const SequenceRows& sequence, Unit unit, Schedule* schedule) {
  const int first_position = sequence.past + unit.first_row;
  const int last_position = first_position + unit.rows - 1;
  unit.first_cut = first_key(first_position, shape.window) / unit.cut_tokens;
  unit.cuts = last_position / unit.cut_tokens - unit.first_cut + 1;
  unit.slot = schedule->slots;
  schedule->slots += static_cast<size_t>(unit.cuts) * static_cast<size_t>(unit.rows * shape.group);
  unit.scored = std::clamp(unit.first_row + unit.rows - (sequence.rows - sequence.scored), 0, unit.rows);
  unit.first_tile = first_key(first_position, shape.window) / format::kTileTokens;
  unit.tiles = last_position / format::kTileTokens - unit.first_tile + 1;
  if (unit.scored > 0) {
    unit.mass = schedule->mass_floats;
    const size_t floats = static_cast<size_t>(unit.scored * shape.group) * static_cast<size_t>(unit.tiles);
    schedule->mass_floats += unit.decode ? floats : 2 * floats;
  }
  for (int c = 0; c < unit.cuts; ++c) schedule->items.push_back({static_cast<int>(schedule->units.size()), c});
  schedule->units.push_back(unit);
}

/// Query rows times keys, an upper bound.
int64_t cost(const Schedule& schedule, std::span<const SequenceRows> sequences, const Item& item) {
  const Unit& unit = schedule.units[static_cast<size_t>(item.unit)];
  const int first_position = sequences[static_cast<size_t>(unit.sequence)].past + unit.first_row;
  const int begin =
      std::max((unit.first_cut + item.cut) * unit.cut_tokens, first_key(first_position, schedule.shape.window));
  const int end = std::min((unit.first_cut + item.cut + 1) * unit.cut_tokens, first_position + unit.rows);
  return static_cast<int64_t>(unit.rows) * (end - begin);
}

}  // namespace

TileRange Unit::tiles_of_cut(int c) const {
  const int cut_tiles = cut_tokens / format::kTileTokens;
  const int begin = (first_cut + c) * cut_tiles - first_tile;
  return {std::max(begin, 0), std::min(begin + cut_tiles, tiles)};
}

int prefill_block_rows(int group) {
  const int rows = std::clamp(kPrefillItemRows / group, 16, 64);
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(rows)));
}

int prefill_cut_tokens(int rows) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(1024, 64 * rows))));
}

Schedule make_schedule(const Shape& shape, std::span<const SequenceRows> sequences) {
  Schedule schedule;
  schedule.shape = shape;
  const int block = prefill_block_rows(shape.group);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    if (sequence.rows <= kDecodeRows) continue;
    const int cut = prefill_cut_tokens(sequence.rows);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int row = 0; row < sequence.rows;) {
        const int rows = std::min(sequence.rows - row, block - (sequence.past + row) % block);
        add_unit(shape, sequence,
                 {.sequence = static_cast<int>(s), .kv_head = head, .first_row = row, .rows = rows, .cut_tokens = cut},
                 &schedule);
        row += rows;
      }
    }
  }
  std::stable_sort(schedule.items.begin(), schedule.items.end(), [&](const Item& a, const Item& b) {
    return cost(schedule, sequences, a) > cost(schedule, sequences, b);
  });
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceRows& sequence = sequences[s];
    if (sequence.rows > kDecodeRows) continue;
    for (int row = 0; row < sequence.rows; ++row) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        add_unit(shape, sequence,
                 {.sequence = static_cast<int>(s),
                  .kv_head = head,
                  .first_row = row,
                  .rows = 1,
                  .cut_tokens = kDecodeCutTokens,
                  .decode = true},
                 &schedule);
      }
    }
  }
  return schedule;
}

}  // namespace varve::attention
