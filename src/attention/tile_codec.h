#pragma once
// Tiles to plain rows and back through the fast kernels. format/plane.h defines the result; its scalar code is the
// oracle in tests.

#include "attention/centre.h"
#include "kernels/cpu/kernels.h"

namespace varve::attention {

/// One layer of one tier: what every tile of it needs.
struct TileCodec {
  const format::LayerFormat* format = nullptr;
  const format::PlaneLayout* plane = nullptr;
  const format::HeadGeometry* head = nullptr;
  const kernels::Kernels* kernels = nullptr;
};

/// plane's stored centre, f16 [head_dim]. Not for Centre::kNone.
inline const uint16_t* centre_row(const uint8_t* plane) { return reinterpret_cast<const uint16_t*>(plane); }
/// The same as fp32, [head_dim].
void read_centre(const TileCodec& codec, const uint8_t* plane, float* u);
/// The stored centre turned to the first row of `tile`, [head_dim], angles in double. No-op for Centre::kNone.
void read_tile_centre(const TileCodec& codec, const uint8_t* plane, int tile, float* tile_centre);
/// format::write_centre over n rows from page offset `offset` on; padding of the K header is zeroed.
void write_centre(const TileCodec& codec, const float* k_rows, int n, int offset, uint8_t* plane);

/// rows: [kTileTokens][head_dim] plain keys of one tile. tile_centre: the stored centre turned to the first row of the
/// tile, [head_dim]; ignored for Centre::kNone.
void decode_k(const TileCodec& codec, int tile, const uint8_t* plane, const float* tile_centre, float* rows);
void decode_v(const TileCodec& codec, int tile, const uint8_t* plane, float* rows);
/// Inverse; `rows` are destroyed.
void encode_k(const TileCodec& codec, const format::EncodeOptions& options, int tile, const float* tile_centre,
              float* rows, uint8_t* plane);
void encode_v(const TileCodec& codec, const format::EncodeOptions& options, int tile, float* rows, uint8_t* plane);

}  // namespace varve::attention
