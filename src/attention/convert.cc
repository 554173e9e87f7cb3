#include "attention/convert.h"

#include "attention/tile_codec.h"

namespace varve::attention {
namespace {

using format::kTileTokens;

}  // namespace

size_t convert_scratch_floats(int head_dim, int page_tokens) {
  // Keys of the page, values of a tile, the centre turned to a tile.
  return static_cast<size_t>(head_dim) * static_cast<size_t>(page_tokens + kTileTokens + 1);
}

void convert_plane(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                   const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                   const kernels::Kernels& kernels, int ordinal, int kv_head, int exact_tokens, const uint8_t* src,
                   uint8_t* dst, float* scratch) {
  const auto layer = static_cast<size_t>(ordinal);
  const format::LayerSlot& from_slot = src_layout.layers[layer];
  const format::LayerSlot& to_slot = dst_layout.layers[layer];
  const TileCodec from{&from_slot.format, &from_slot.plane, &geometry.head, &kernels};
  const TileCodec to{&to_slot.format, &to_slot.plane, &geometry.head, &kernels};
  const uint8_t* src_plane = src + src_layout.plane(ordinal, kv_head);
  uint8_t* dst_plane = dst + dst_layout.plane(ordinal, kv_head);

  const int head_dim = geometry.head.head_dim;
  const size_t tile_floats = static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim);
  const int tiles = from.plane->tiles;
  float* keys = scratch;
  float* values = keys + static_cast<size_t>(tiles) * tile_floats;
  float* tile_centre = values + tile_floats;

  for (int i = 0; i < tiles; ++i) {
    read_tile_centre(from, src_plane, i, tile_centre);
    decode_k(from, i, src_plane, tile_centre, keys + static_cast<size_t>(i) * tile_floats);
  }
  write_centre(to, keys + static_cast<size_t>(exact_tokens) * static_cast<size_t>(head_dim),
               tiles * kTileTokens - exact_tokens, exact_tokens, dst_plane);
  for (int i = 0; i < tiles; ++i) {
    read_tile_centre(to, dst_plane, i, tile_centre);  // as stored: the encoder subtracts what readers will add back
    encode_k(to, options, i, tile_centre, keys + static_cast<size_t>(i) * tile_floats, dst_plane);
    decode_v(from, i, src_plane, values);
    encode_v(to, options, i, values, dst_plane);
  }
}

}  // namespace varve::attention
