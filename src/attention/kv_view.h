#pragma once
// One KV head of one layer of one sequence as a step reads it: sink rows, sealed tiles of pages, then the f16 tail.

#include "attention/lowrank.h"
#include "attention/step.h"
#include "attention/tile_codec.h"

namespace varve::attention {

/// A sequence's part of a step plus what plan() derives from it.
struct SequenceState {
  SequenceView view;
  int tail_start = 0;         ///< layers with a strip: positions from here on are f16 in the tail
  bool tail_in_strip = true;  ///< all rows of the step fit in the open tile; else the tail is in the scratch
  size_t tail_offset = 0;     ///< tokens of other sequences before this one's tail in the scratch

  int end() const { return view.past + view.rows; }
  int tail_tokens() const { return end() - tail_start; }
};

/// f16 rows of one KV head.
struct HalfRows {
  uint16_t* k = nullptr;  ///< [n][head_dim]
  uint16_t* v = nullptr;  ///< [n][head_dim]
};

/// The parts of one KV head of one layer in a sequence's strip. Null when the layer owns none.
struct StripRows {
  HalfRows sinks, open;
};
StripRows strip_rows(const format::StripLayout* layout, const format::LayerGeometry& layer, int ordinal, int kv_head,
                     uint8_t* strip);
inline bool owns_strip(const format::StripLayout* layout, int ordinal) {
  return layout != nullptr && layout->open_head_bytes[static_cast<size_t>(ordinal)] > 0;
}

/// Rows of one KV head of a sequence's tail in the class's scratch (K rows of the tail, then its V rows).
HalfRows scratch_tail(const SequenceState& sequence, const format::LayerGeometry& layer, int kv_head,
                      uint16_t* scratch);

/// 64 positions of one KV head: f16 rows, a coded tile, or a tile of a low-rank block.
struct TileView {
  HalfRows rows;                   ///< set: f16 rows
  TileCodec codec;                 ///< of a coded tile
  const uint8_t* plane = nullptr;  ///< set: a coded tile
  BlockHead block;                 ///< its data set: a tile of a low-rank block
  int tile = 0;                    ///< of a coded or low-rank tile, inside its page

  bool low_rank() const { return block.data != nullptr; }
};

struct HeadView {
  const SequenceState* sequence = nullptr;
  const format::LayerGeometry* layer = nullptr;
  const kernels::Kernels* kernels = nullptr;
  int ordinal = 0;
  int kv_head = 0;
  bool has_tail = false;  ///< the layer owns a strip
  HalfRows tail;          ///< first row: position sequence->tail_start
  HalfRows sinks;
  int sink_tokens = 0;  ///< positions below are read from `sinks`, unless the tail holds them

  /// `position` is a multiple of kTileTokens, below the sequence's end.
  TileView tile(int position) const;
  /// Sink rows that stand in for the first tokens of the tile at `position`.
  int sinks_in_tile(int position) const {
    return position == 0 && !(has_tail && sequence->tail_start == 0) ? sink_tokens : 0;
  }
};

}  // namespace varve::attention
