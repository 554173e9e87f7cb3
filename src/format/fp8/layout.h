#pragma once
// fp8 tile, K and V alike, rotated frame: E4M3FN rows, then one f16 scale per token. value = e4m3 * scale,
// scale = absmax / 448 rounded up to f16.

#include "base/half.h"
#include "format/codec.h"

namespace varve::format::fp8 {

template <int head_dim>
struct Tile {
  uint8_t rows[kTileTokens][head_dim];
  half_t scale[kTileTokens];
};

constexpr size_t tile_bytes(int head_dim) {
  return kTileTokens * static_cast<size_t>(head_dim) + kTileTokens * sizeof(half_t);
}
static_assert(sizeof(Tile<64>) == tile_bytes(64) && tile_bytes(64) == 4224);
static_assert(sizeof(Tile<80>) == tile_bytes(80) && tile_bytes(80) == 5248);
static_assert(sizeof(Tile<96>) == tile_bytes(96) && tile_bytes(96) == 6272);
static_assert(sizeof(Tile<128>) == tile_bytes(128) && tile_bytes(128) == 8320);
static_assert(sizeof(Tile<192>) == tile_bytes(192) && tile_bytes(192) == 12416);
static_assert(sizeof(Tile<256>) == tile_bytes(256) && tile_bytes(256) == 16512);

void encode(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
void decode(const uint8_t* tile, int head_dim, float* rows);

}  // namespace varve::format::fp8
