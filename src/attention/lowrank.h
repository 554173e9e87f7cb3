#pragma once
// What decode and prefill need of a tile of a low-rank block (format/lr/block.h).
//
// A block's keys are either in the frame of attention ("rotated") or in that of the page's first position. Of the
// former, scores are q.anchor + (q.basis) u and no key is ever made; the latter must be made and turned, once for all
// query heads of a group. Values need neither: weights are gathered per direction over the tiles of a page, and the
// basis is met once. Exact rows replace their low-rank twins in all of this.

#include <cstdint>

#include "attention/page_turn.h"
#include "base/memory.h"
#include "format/lr/block.h"

namespace varve::attention {

/// One KV head of one layer of one low-rank page.
struct BlockHead {
  const uint8_t* data = nullptr;
  format::BlockShape shape;
  int kv_head = 0;
  bool same(const BlockHead& other) const { return data == other.data && kv_head == other.kv_head; }
};

/// Decoded parts of blocks in the buffers of one thread.
class BlockReader {
 public:
  /// Ranks up to max_rank; heads: query heads of the largest item. False when memory was refused.
  bool reserve(int max_rank, int head_dim, int heads);
  /// The bytes behind the blocks may have changed.
  void forget();
  /// Other queries come: decode calls it before an item, and before the segments of one unit alone.
  void new_queries() { terms_of_ = {}; }

  size_t codec_bytes() const { return codec_.size(); }
  size_t work_bytes() const { return work_.size(); }

  /// keys: [head_dim][stride], of which columns [0, kTileTokens) become the tile's keys at their positions. turn: of
  /// the layer; null when it does not rotate.
  void keys(const kernels::Kernels& kernels, const BlockHead& head, int tile, const PageTurn* turn, int stride,
            float* keys);
  /// rows: [kTileTokens][head_dim], the tile's values.
  void values(const kernels::Kernels& kernels, const BlockHead& head, int tile, float* rows);

  /// Decode. Query heads in `units` groups of `group`, each group in products of its own, so that who else is there
  /// does not show in its bits. q: [units * group][head_dim]; scores: [units * group][kTileTokens].
  void score(const kernels::Kernels& kernels, const BlockHead& head, int tile, const PageTurn* turn, int group,
             int units, const float* q, float* scores);
  /// Adds the values of tokens [first, last) of the tile under the weights p, [units * group][kTileTokens], zero at all
  /// others. acc: [units * group][head_dim]; complete after finish_values().
  void add_values(const kernels::Kernels& kernels, const BlockHead& head, int tile, int first, int last, int group,
                  int units, const float* p, float* acc);
  void finish_values(const kernels::Kernels& kernels) {
    if (gathered_of_.data != nullptr) finish_page(kernels);
  }

 private:
  void finish_page(const kernels::Kernels& kernels);
  void load_key_basis(const kernels::Kernels& kernels, const BlockHead& head);
  void load_value_basis(const kernels::Kernels& kernels, const BlockHead& head);
  /// u_ and the tile's exact rows [first, last) of `view`.
  void load_u(const kernels::Kernels& kernels, const format::BlockView& view, int tile);
  /// Exact rows [first, last) of the block to rows_, K or V (`side` 0 or 1), deltas from the anchor.
  void load_rows(const BlockHead& head, const format::BlockView& view, int side, int first, int last);
  void score_unturned(const kernels::Kernels& kernels, const BlockHead& head, const format::BlockView& view, int tile,
                      int group, int units, const float* q, float* scores);

  AlignedBuffer codec_, work_;
  // One block's K and one block's V at a time.
  BlockHead keys_of_, values_of_;
  float* key_basis_ = nullptr;     ///< [head_dim][rank]
  float* key_anchor_ = nullptr;    ///< [head_dim]
  float* value_basis_ = nullptr;   ///< [rank][head_dim]
  float* value_anchor_ = nullptr;  ///< [head_dim]
  float* u_ = nullptr;             ///< [rank][kTileTokens]
  float* u_turned_ = nullptr;      ///< [kTileTokens][rank], or a basis on its way to its place: [rank][head_dim]
  float* keys_ = nullptr;          ///< [head_dim][kTileTokens]
  float* rows_ = nullptr;          ///< [kTileTokens][head_dim] exact rows of a tile
  // Scores of a rotated block.
  BlockHead terms_of_;
  float* terms_ = nullptr;  ///< [heads][rank]: q.basis
  float* base_ = nullptr;   ///< [heads]: q.anchor
  float* exact_ = nullptr;  ///< [heads][kTileTokens]: weights or scores of exact rows
  // Values gathered over the tiles of a page.
  BlockHead gathered_of_;
  int gathered_group_ = 0, gathered_units_ = 0;
  float* acc_ = nullptr;       ///< where they go
  float* gathered_ = nullptr;  ///< [heads][rank]
  float* weight_ = nullptr;    ///< [heads]: sum of all weights, exact rows included
  float* p_ = nullptr;         ///< [group][kTileTokens] without exact rows
};

}  // namespace varve::attention
