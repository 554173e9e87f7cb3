#pragma once
// f16 tile, K and V alike: [64][head_dim] IEEE binary16 in the plain frame, no metadata.

#include "base/half.h"
#include "format/codec.h"

namespace varve::format::f16 {

template <int head_dim>
struct Tile {
  half_t rows[kTileTokens][head_dim];
};

constexpr size_t tile_bytes(int head_dim) { return sizeof(half_t) * kTileTokens * static_cast<size_t>(head_dim); }
static_assert(sizeof(Tile<64>) == tile_bytes(64) && tile_bytes(64) == 8192);
static_assert(sizeof(Tile<80>) == tile_bytes(80) && tile_bytes(80) == 10240);
static_assert(sizeof(Tile<96>) == tile_bytes(96) && tile_bytes(96) == 12288);
static_assert(sizeof(Tile<128>) == tile_bytes(128) && tile_bytes(128) == 16384);
static_assert(sizeof(Tile<192>) == tile_bytes(192) && tile_bytes(192) == 24576);
static_assert(sizeof(Tile<256>) == tile_bytes(256) && tile_bytes(256) == 32768);

void encode(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
void decode(const uint8_t* tile, int head_dim, float* rows);

}  // namespace varve::format::f16
