#pragma once
// One layer of one low-rank page: all KV heads in one block, laid out by what its header says (rank and rows), in a
// fixed number of bytes per format, so that pages keep fixed slots.
//
//   [BlockHeader][row index][tile index][U][anchor][basis of head 0, 1, ...][exact rows of head 0, 1, ...]
//
// The rows of a block are deltas from its anchor, row 0, kept exact in f16. Row t of KV head h decodes to
//   k = anchor_k + sum_i u[t][i] basis_k[i]      v = anchor_v + sum_i u[t][i] basis_v[i]
// unless t is in the row index: then it is anchor + the exact row's delta, which REPLACES the low-rank row. u of the
// anchor and of exact rows is zero. u is int8; its scales are folded into the basis, so u[t][i] above is the integer
// itself. Where row 0 is a sink or lost, the anchor is the first row that is neither.
//
// Keys are in the block's frame: for LowRank::rotated as attention uses them, else turned back to the page's first
// position (RoPE of page offset 0): a reader turns row t by R(t).

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "base/memory.h"
#include "format/codec.h"

namespace varve::format {

/// Page sizes that a low-rank format supports: multiples of kTileTokens in this range.
inline constexpr int kMinBlockTokens = 64;
inline constexpr int kMaxBlockTokens = kMaxLowRankTokens;
/// Values that share a scale (and, in int8 and int4 rows, a zero) in an exact row; the last group may be shorter.
inline constexpr int kRowGroup = 64;

struct BlockShape {
  int tokens = 0;
  int kv_heads = 0;
  int head_dim = 0;
  LowRank format;
  int width() const { return 2 * kv_heads * head_dim; }  ///< of a joint row: K of all heads, then V of all heads
};

/// kInvalidArgument with the numbers: rank above min(tokens - 1, width), rows above tokens - 1, tokens out of range.
Status check_block(const BlockShape& shape);

/// Bytes of the block, whatever its content: what `rank` directions and `rows` exact rows take. Multiple of kCacheLine.
size_t block_bytes(const BlockShape& shape);
/// Of these, the codes alone: U, anchor, basis, and what the exact rows hold but their scales.
size_t block_payload_bytes(const BlockShape& shape);
/// Exact rows that fit beside `rank` directions (at most the shape's) in block_bytes; at most tokens - 1.
int rows_at_rank(const BlockShape& shape, int rank);

struct BlockHeader {
  uint16_t rank;
  uint16_t rows;
  float retained_energy;  ///< of the delta that `rank` directions keep, 0 to 1
  uint8_t reserved[56];   ///< zero
};
static_assert(sizeof(BlockHeader) == kCacheLine);

/// Pointers into a block.
struct BlockView {
  int rank = 0;
  int rows = 0;
  const uint16_t* row_tokens = nullptr;  ///< [rows] page offsets of exact rows, ascending; never the anchor's
  const uint16_t* tile_rows = nullptr;   ///< [tiles + 1]: rows [tile_rows[i], tile_rows[i + 1]) are those of tile i
  const int8_t* u = nullptr;             ///< [tiles][rank][kTileTokens]
  const half_t* anchor = nullptr;        ///< [width]: K of all heads, V of all heads
  const half_t* basis = nullptr;         ///< [kv_heads][2][rank][head_dim]: K, V
  const uint8_t* exact = nullptr;        ///< [kv_heads][2][rows] coded rows of row_bytes each

  const int8_t* u_tile(int tile) const {
    return u + static_cast<size_t>(tile) * static_cast<size_t>(rank) * kTileTokens;
  }
};
BlockView view_block(const BlockShape& shape, const uint8_t* block);

/// Bytes of one coded exact row of one KV head, K or V.
size_t row_bytes(RowCodec codec, int head_dim);
/// Encodes one exact row (a delta from the anchor), x: [head_dim]. A row with NaN or infinity, or whose scale f16
/// cannot hold, decodes to NaN in all its dims; kF16 keeps elements as they are.
void encode_row(RowCodec codec, int head_dim, const float* x, uint8_t* row);
/// Decodes one exact row (a delta from the anchor) to fp32 [head_dim].
void decode_row(RowCodec codec, int head_dim, const uint8_t* row, float* out);

/// Scalar reference: decodes one tile of one KV head, in the block's frame. k_rows, v_rows: [kTileTokens][head_dim];
/// either may be null.
void decode_block_tile(const BlockShape& shape, const uint8_t* block, int kv_head, int tile, float* k_rows,
                       float* v_rows);

}  // namespace varve::format
