#include "format/lr/block.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace varve::format {
namespace {

/// Byte offsets of a block that holds `rank` directions and `rows` exact rows.
struct BlockLayout {
  size_t row_tokens, tile_rows, u, anchor, basis, exact, bytes;
};

BlockLayout layout(const BlockShape& shape, int rank, int rows) {
  const size_t tokens = static_cast<size_t>(shape.tokens), width = static_cast<size_t>(shape.width());
  const size_t r = static_cast<size_t>(rank), n = static_cast<size_t>(rows);
  BlockLayout l;
  l.row_tokens = sizeof(BlockHeader);
  l.tile_rows = l.row_tokens + n * sizeof(uint16_t);
  l.u = align_up(l.tile_rows + (tokens / kTileTokens + 1) * sizeof(uint16_t), kCacheLine);
  l.anchor = l.u + tokens * r;  // tiles of 64 tokens: whole cache lines
  l.basis = l.anchor + width * sizeof(half_t);
  l.exact = l.basis + width * r * sizeof(half_t);
  l.bytes = l.exact + 2 * static_cast<size_t>(shape.kv_heads) * n * row_bytes(shape.format.row_codec, shape.head_dim);
  return l;
}

std::string range(const char* what, int value, int low, int high) {
  return std::string(what) + ' ' + std::to_string(value) + " is not within " + std::to_string(low) + ".." +
         std::to_string(high);
}

}  // namespace

Status check_block(const BlockShape& shape) {
  if (shape.tokens % kTileTokens != 0 || shape.tokens < kMinBlockTokens || shape.tokens > kMaxBlockTokens) {
    return invalid_argument(range("low-rank block of tokens", shape.tokens, kMinBlockTokens, kMaxBlockTokens) +
                            " in steps of " + std::to_string(kTileTokens));
  }
  if (!head_dim_supported(shape.head_dim)) {
    return unsupported("head_dim " + std::to_string(shape.head_dim) + " (supported: 64, 80, 96, 128, 192, 256)");
  }
  if (shape.kv_heads <= 0) return invalid_argument(std::to_string(shape.kv_heads) + " KV heads in a low-rank block");
  const int most_rank = std::min(shape.tokens - 1, shape.width());
  if (shape.format.rank < 1 || shape.format.rank > most_rank) {
    return invalid_argument(range("rank", shape.format.rank, 1, most_rank) + " for " + std::to_string(shape.tokens) +
                            " tokens of " + std::to_string(shape.width()) + " values");
  }
  if (shape.format.rows < 0 || shape.format.rows > shape.tokens - 1) {
    return invalid_argument(range("exact rows", shape.format.rows, 0, shape.tokens - 1) + " for " +
                            std::to_string(shape.tokens) + " tokens");
  }
  return {};
}

size_t block_bytes(const BlockShape& shape) {
  return align_up(layout(shape, shape.format.rank, shape.format.rows).bytes, kCacheLine);
}

int rows_at_rank(const BlockShape& shape, int rank) {
  const size_t bytes = block_bytes(shape);
  // bytes grow with rows: the last number of rows that fits.
  int fits = 0, too_many = shape.tokens;
  while (too_many - fits > 1) {
    const int rows = (fits + too_many) / 2;
    (layout(shape, rank, rows).bytes <= bytes ? fits : too_many) = rows;
  }
  return fits;
}

size_t block_payload_bytes(const BlockShape& shape) {
  const size_t width = static_cast<size_t>(shape.width()), rank = static_cast<size_t>(shape.format.rank);
  const size_t bits = shape.format.row_codec == RowCodec::kF16 ? 16 : shape.format.row_codec == RowCodec::kInt8 ? 8 : 4;
  return static_cast<size_t>(shape.tokens) * rank + (1 + rank) * width * sizeof(half_t) +
         static_cast<size_t>(shape.format.rows) * width * bits / 8;
}

BlockView view_block(const BlockShape& shape, const uint8_t* block) {
  BlockHeader header;
  std::memcpy(&header, block, sizeof(header));
  const BlockLayout l = layout(shape, header.rank, header.rows);
  BlockView view;
  view.rank = header.rank;
  view.rows = header.rows;
  view.row_tokens = reinterpret_cast<const uint16_t*>(block + l.row_tokens);
  view.tile_rows = reinterpret_cast<const uint16_t*>(block + l.tile_rows);
  view.u = reinterpret_cast<const int8_t*>(block + l.u);
  view.anchor = reinterpret_cast<const half_t*>(block + l.anchor);
  view.basis = reinterpret_cast<const half_t*>(block + l.basis);
  view.exact = block + l.exact;
  return view;
}

namespace {

/// One side (0: K, 1: V) of one KV head of one tile.
void decode_side(const BlockShape& shape, const BlockView& view, int kv_head, int side, int tile, float* rows) {
  const size_t dim = static_cast<size_t>(shape.head_dim), rank = static_cast<size_t>(view.rank);
  const half_t* anchor = view.anchor + static_cast<size_t>(side * shape.kv_heads + kv_head) * dim;
  const half_t* basis = view.basis + static_cast<size_t>(2 * kv_head + side) * rank * dim;
  const size_t coded = row_bytes(shape.format.row_codec, shape.head_dim);
  const uint8_t* exact = view.exact + static_cast<size_t>(2 * kv_head + side) * static_cast<size_t>(view.rows) * coded;
  const int8_t* u = view.u_tile(tile);
  float delta[kMaxHeadDim];
  int next = view.tile_rows[tile];
  for (int t = 0; t < kTileTokens; ++t) {
    std::fill_n(delta, dim, 0.0f);
    if (next < view.tile_rows[tile + 1] && view.row_tokens[next] == tile * kTileTokens + t) {
      decode_row(shape.format.row_codec, shape.head_dim, exact + static_cast<size_t>(next) * coded, delta);
      ++next;
    } else {
      for (size_t i = 0; i < rank; ++i) {
        const float factor = u[i * kTileTokens + static_cast<size_t>(t)];
        for (size_t d = 0; d < dim; ++d) delta[d] += factor * half_to_float(basis[i * dim + d]);
      }
    }
    for (size_t d = 0; d < dim; ++d) rows[static_cast<size_t>(t) * dim + d] = half_to_float(anchor[d]) + delta[d];
  }
}

}  // namespace

void decode_block_tile(const BlockShape& shape, const uint8_t* block, int kv_head, int tile, float* k_rows,
                       float* v_rows) {
  const BlockView view = view_block(shape, block);
  if (k_rows != nullptr) decode_side(shape, view, kv_head, 0, tile, k_rows);
  if (v_rows != nullptr) decode_side(shape, view, kv_head, 1, tile, v_rows);
}

}  // namespace varve::format
