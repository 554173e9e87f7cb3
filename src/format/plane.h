#pragma once
// One KV head of one layer of one page: [K header][K tiles][V tiles]. The K header is the centre u, f16[head_dim]
// (absent for Centre::kNone), padded to a cache line. Tiles are in token order; tile i covers page offsets
// [64 i, 64 i + 64). u is in the plain frame, in RoPE position `page start`: for Centre::kRotary the removed part of
// the token at page offset o is R(o).u, for kPost it is u itself.
//
// This file turns plain rows (keys after RoPE, values) into tiles and back; it owns centring and rotation.

#include "base/half.h"
#include "base/memory.h"
#include "format/codec.h"
#include "format/rotary.h"
#include "format/rotation.h"

namespace varve::format {

/// What the codecs of one layer need besides the bytes. Pointers outlive every page of the layer.
struct HeadGeometry {
  int head_dim = 0;
  const Rotation* rotation = nullptr;
  const RotaryTable* rotary = nullptr;
};

/// Byte offsets inside one plane.
struct PlaneLayout {
  size_t k_header_bytes = 0;  ///< 0 or align_up(2 * head_dim, 64)
  size_t k_tile_bytes = 0;
  size_t v_tile_bytes = 0;
  int tiles = 0;
  size_t bytes = 0;           ///< of the whole plane, multiple of kCacheLine
  size_t payload_bytes = 0;   ///< codes alone: tiles * 64 * head_dim * (K bits + V bits) / 8

  size_t k_tile(int tile) const { return k_header_bytes + static_cast<size_t>(tile) * k_tile_bytes; }
  size_t v_tile(int tile) const {
    return k_header_bytes + static_cast<size_t>(tiles) * k_tile_bytes + static_cast<size_t>(tile) * v_tile_bytes;
  }
};

PlaneLayout plane_layout(const LayerFormat& format, int head_dim, int page_tokens);

/// Computes the centre of `n` plain key rows ([n][head_dim], the first at page offset `offset`), rounds it to f16 and
/// writes it to the plane's K header. No-op for kNone. Rows with an element that f16 cannot hold (NaN, infinity, past 65504)
/// are left out of the mean; with none left the centre is zero.
void write_centre(const LayerFormat& format, const HeadGeometry& geometry, const float* k_rows, int n, int offset,
                  uint8_t* plane);

/// rows += sign * (the part that the centre removes from each token of tile `tile`): sign -1 before coding, +1 after
/// decoding. rows: [kTileTokens][head_dim] plain K. fp32 arithmetic, the same for every caller. No-op for kNone.
void add_centre(const LayerFormat& format, const HeadGeometry& geometry, int tile, float sign, const uint8_t* plane,
                float* rows);

/// Encodes one whole tile from plain rows: k_rows, v_rows are [kTileTokens][head_dim]. The centre must be written.
/// scratch: 2 * kTileTokens * head_dim floats.
void encode_tile(const LayerFormat& format, const HeadGeometry& geometry, const PlaneLayout& layout,
                 const EncodeOptions& options, int tile, const float* k_rows, const float* v_rows, float* scratch,
                 uint8_t* plane);

/// Scalar reference: decodes one tile to plain rows (inverse rotation, centre added back). Either output may be null.
void decode_tile(const LayerFormat& format, const HeadGeometry& geometry, const PlaneLayout& layout, int tile,
                 const uint8_t* plane, float* k_rows, float* v_rows);

}  // namespace varve::format
