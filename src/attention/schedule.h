#pragma once
// Cuts one step of one attention class into work items: pure arithmetic over row counts and positions, no pages, no
// bytes. Cuts depend on a sequence's own positions and row count alone, never on threads or neighbours.

#include <cstddef>
#include <span>
#include <vector>

namespace varve::attention {

/// A sequence that brings at most this many rows takes the decode path.
inline constexpr int kDecodeRows = 4;
/// Decode items cut the KV axis at multiples of this position.
inline constexpr int kDecodeCutTokens = 512;
/// Rows x query heads of a prefill item are about this many.
inline constexpr int kPrefillItemRows = 256;

/// What the cuts depend on besides the sequences. Layers with equal shapes share a schedule.
struct Shape {
  int kv_heads = 0;
  int group = 0;
  int window = 0;  ///< 0: full attention
  bool operator==(const Shape&) const = default;
};

struct SequenceRows {
  int rows = 0;    ///< new this step
  int past = 0;    ///< position of the first of them
  int scored = 0;  ///< the last so many of them have their page mass collected
};

struct TileRange {
  int begin = 0, end = 0;
};

/// Rows of one sequence that go together through one KV head.
struct Unit {
  int sequence = 0;
  int kv_head = 0;
  int first_row = 0;  ///< within the sequence's new rows
  int rows = 0;       ///< 1 on the decode path
  int cut_tokens = 0;
  int first_cut = 0;  ///< cut c covers positions [c * cut_tokens, (c + 1) * cut_tokens)
  int cuts = 0;
  bool decode = false;
  /// Results of cut c, row r, head g of the group are at slot + (c * rows + r) * group + g.
  size_t slot = 0;

  int scored = 0;      ///< the last so many rows have their mass collected
  int first_tile = 0;  ///< of tokens that the unit attends to; tile t covers positions [64 t, 64 t + 64)
  int tiles = 0;
  /// Mass of scored row i / group, head i % group: [tiles] floats at mass_row(i). Prefill units keep as many rows again
  /// behind these, for the maximum that each tile's mass refers to while the item runs.
  size_t mass = 0;
  size_t mass_row(int i) const { return mass + static_cast<size_t>(i) * static_cast<size_t>(tiles); }
  /// Where the flags of the pages that the router chose for it start (select/router.h); -1: it attends to all.
  ptrdiff_t selection = -1;
  /// Tiles of cut c that the unit attends to, counted from first_tile.
  TileRange tiles_of_cut(int c) const;
};

struct Item {
  int unit = 0;
  int cut = 0;  ///< 0 .. cuts - 1
  int units =
      1;  ///< more: a joint item (share.h) of decode units with one KV head and one cut, `unit` the first of them
  int first_unit = 0;  ///< of a joint item: its units are joint_units[first_unit, first_unit + units)
  int shared_end = 0;  ///< of a joint item: all its units read the same tiles from the cut's begin up to this position
};

/// What joining saves: tiles that the rows on the decode path attend to, once per row, and once per item that reads
/// them.
struct ReadPlan {
  size_t shared_items = 0;  ///< items that serve several rows
  size_t tiles_requested = 0;
  size_t tiles_read = 0;
};

struct Schedule {
  Shape shape;
  std::vector<Unit> units;
  std::vector<Item> items;  ///< dearest prefill items first, then decode items in order
  std::vector<int> joint_units;
  ReadPlan reads;
  size_t slots = 0;
  size_t mass_floats = 0;  ///< of all units' mass in one layer
};

/// First position that the row at `position` attends to.
inline int first_key(int position, int window) { return window > 0 && position >= window ? position - window + 1 : 0; }
/// Rows of one prefill item: a power of two between 16 and 64.
int prefill_block_rows(int group);
/// KV cut of a prefill sequence of `rows` rows: long enough that partial results stay small beside the cache, short
/// enough that few rows over a long past still spread over threads.
int prefill_cut_tokens(int rows);

Schedule make_schedule(const Shape& shape, std::span<const SequenceRows> sequences);

}  // namespace varve::attention
