#include "attention/convert.h"

#include <algorithm>
#include <cstring>

#include "attention/tile_codec.h"

namespace varve::attention {
namespace {

using format::Centre;
using format::kTileTokens;

/// R(64 tile).u for a rotary centre, u for the others. Double-precision angles: once per tile is cheap here.
void turn_to_tile(const TileCodec& codec, const float* u, int tile, float* out) {
  if (codec.format->centre == Centre::kNone) return;
  std::memcpy(out, u, static_cast<size_t>(codec.head->head_dim) * sizeof(float));
  if (codec.format->centre == Centre::kRotary) codec.head->rotary->turn(out, tile * kTileTokens);
}

}  // namespace

size_t convert_scratch_floats(int head_dim, int page_tokens) {
  // Keys of the page, values of a tile, the centre and its turned copy.
  return static_cast<size_t>(head_dim) * static_cast<size_t>(page_tokens + kTileTokens + 2);
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
  float* centre = values + tile_floats;
  float* tile_centre = centre + head_dim;

  if (from.format->centre != Centre::kNone) read_centre(from, src_plane, centre);
  CentreMean mean(to.format->centre, geometry.head.rotary, head_dim);
  for (int i = tiles - 1; i >= 0; --i) {
    float* rows = keys + static_cast<size_t>(i) * tile_floats;
    turn_to_tile(from, centre, i, tile_centre);
    decode_k(from, i, src_plane, tile_centre, rows);
    if (to.format->centre == Centre::kNone) continue;
    const int exact = std::clamp(exact_tokens - i * kTileTokens, 0, kTileTokens);
    mean.add_tile(rows + static_cast<size_t>(exact) * static_cast<size_t>(head_dim), exact, kTileTokens - exact);
  }
  if (to.format->centre != Centre::kNone) {
    mean.finish(centre);
    store_centre(to, centre, dst_plane);
    read_centre(to, dst_plane, centre);  // what readers will add back is what the encoder must subtract
  }
  for (int i = 0; i < tiles; ++i) {
    turn_to_tile(to, centre, i, tile_centre);
    encode_k(to, options, i, tile_centre, keys + static_cast<size_t>(i) * tile_floats, dst_plane);
    decode_v(from, i, src_plane, values);
    encode_v(to, options, i, values, dst_plane);
  }
}

}  // namespace varve::attention
