#pragma once
// tq tiles, rotated frame: planar codes of `bits` bits (format/planar.h), then f16 metadata per token.
//   K: norm[64].            value = norm * level[code] / 128
//   V: scale[64], zero[64]. value = zero + scale * level[code] / 128
// The levels are format/tq/codebook.h. 1/128 keeps the stored factor in f16's normal range.

#include "base/half.h"
#include "format/planar.h"

namespace varve::format::tq {

inline constexpr float kLevelUnit = 1.0f / 128.0f;

/// Below this sum of squares the factor rounds to zero in f16 (and its reciprocal may leave fp32).
inline constexpr float kVanishing = 1e-18f;

template <int head_dim, int bits>
struct KTile {
  uint8_t codes[head_dim * kTileTokens * bits / 8];
  half_t norm[kTileTokens];
};

template <int head_dim, int bits>
struct VTile {
  uint8_t codes[head_dim * kTileTokens * bits / 8];
  half_t scale[kTileTokens];
  half_t zero[kTileTokens];
};

constexpr size_t k_tile_bytes(int head_dim, int bits) {
  return planar::bytes(head_dim, bits) + kTileTokens * sizeof(half_t);
}
constexpr size_t v_tile_bytes(int head_dim, int bits) {
  return planar::bytes(head_dim, bits) + 2 * kTileTokens * sizeof(half_t);
}

template <int head_dim>
constexpr bool sizes_agree() {
  return sizeof(KTile<head_dim, 6>) == k_tile_bytes(head_dim, 6) &&
         sizeof(KTile<head_dim, 5>) == k_tile_bytes(head_dim, 5) &&
         sizeof(KTile<head_dim, 4>) == k_tile_bytes(head_dim, 4) &&
         sizeof(KTile<head_dim, 3>) == k_tile_bytes(head_dim, 3) &&
         sizeof(KTile<head_dim, 2>) == k_tile_bytes(head_dim, 2) &&
         sizeof(VTile<head_dim, 4>) == v_tile_bytes(head_dim, 4) &&
         sizeof(VTile<head_dim, 3>) == v_tile_bytes(head_dim, 3) &&
         sizeof(VTile<head_dim, 2>) == v_tile_bytes(head_dim, 2);
}
static_assert(sizes_agree<64>() && sizes_agree<80>() && sizes_agree<96>());
static_assert(sizes_agree<128>() && sizes_agree<192>() && sizes_agree<256>());
static_assert(sizeof(KTile<128, 3>) == 8 * 128 * 3 + 128 && sizeof(VTile<128, 3>) == 8 * 128 * 3 + 256);

/// Instantiated for K bits 6, 5, 4, 3, 2 and V bits 4, 3, 2.
template <int bits>
void encode_k(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
template <int bits>
void decode_k(const uint8_t* tile, int head_dim, float* rows);
template <int bits>
void encode_v(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
template <int bits>
void decode_v(const uint8_t* tile, int head_dim, float* rows);

}  // namespace varve::format::tq
