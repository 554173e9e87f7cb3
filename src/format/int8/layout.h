#pragma once
// int8 tile, rotated frame: planar codes in [-127, 127] (format/planar.h; one plane of 8 bits, the value itself), then
// one f16 scale per token. value = code * scale, scale = absmax / 127 rounded up to f16. K and V differ only in the
// order of the codes.

#include "base/half.h"
#include "format/planar.h"

namespace varve::format::int8 {

template <int head_dim>
struct Tile {
  int8_t units[head_dim][planar::kUnit];
  half_t scale[kTileTokens];
};

constexpr size_t tile_bytes(int head_dim) { return planar::bytes(head_dim, 8) + kTileTokens * sizeof(half_t); }
static_assert(sizeof(Tile<64>) == tile_bytes(64) && tile_bytes(64) == 4224);
static_assert(sizeof(Tile<80>) == tile_bytes(80) && tile_bytes(80) == 5248);
static_assert(sizeof(Tile<96>) == tile_bytes(96) && tile_bytes(96) == 6272);
static_assert(sizeof(Tile<128>) == tile_bytes(128) && tile_bytes(128) == 8320);
static_assert(sizeof(Tile<192>) == tile_bytes(192) && tile_bytes(192) == 12416);
static_assert(sizeof(Tile<256>) == tile_bytes(256) && tile_bytes(256) == 16512);

void encode_k(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
void encode_v(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
void decode_k(const uint8_t* tile, int head_dim, float* rows);
void decode_v(const uint8_t* tile, int head_dim, float* rows);

}  // namespace varve::format::int8
