#include "attention/tile_codec.h"

#include <cstring>

namespace varve::attention {
namespace {

using format::Frame;
using format::kTileTokens;

}  // namespace

void read_centre(const TileCodec& codec, const uint8_t* plane, float* u) {
  codec.kernels->f16_to_f32(reinterpret_cast<const uint16_t*>(plane), u, static_cast<size_t>(codec.head->head_dim));
}

void store_centre(const TileCodec& codec, const float* mean, uint8_t* plane) {
  if (codec.format->centre == format::Centre::kNone) return;
  const auto head_dim = static_cast<size_t>(codec.head->head_dim);
  codec.kernels->f32_to_f16(mean, reinterpret_cast<uint16_t*>(plane), head_dim);
  const size_t used = head_dim * sizeof(uint16_t);  // slots are reused: padding must not depend on what was there
  std::memset(plane + used, 0, codec.plane->k_header_bytes - used);
}

void decode_k(const TileCodec& codec, int tile, const uint8_t* plane, const float* tile_centre, float* rows) {
  const format::HeadGeometry& head = *codec.head;
  codec.kernels->k_decode[static_cast<size_t>(codec.format->k)](plane + codec.plane->k_tile(tile), head.head_dim, rows);
  if (format::k_codec(codec.format->k).frame == Frame::kRotated) {
    codec.kernels->unrotate(rows, kTileTokens, head.head_dim, head.rotation->signs());
  }
  add_centre(codec.format->centre, head.rotary, tile_centre, head.head_dim, 1.0f, rows);
}

void decode_v(const TileCodec& codec, int tile, const uint8_t* plane, float* rows) {
  const format::HeadGeometry& head = *codec.head;
  codec.kernels->v_decode[static_cast<size_t>(codec.format->v)](plane + codec.plane->v_tile(tile), head.head_dim, rows);
  if (format::v_codec(codec.format->v).frame == Frame::kRotated) {
    codec.kernels->unrotate(rows, kTileTokens, head.head_dim, head.rotation->signs());
  }
}

void encode_k(const TileCodec& codec, const format::EncodeOptions& options, int tile, const float* tile_centre,
              float* rows, uint8_t* plane) {
  const format::HeadGeometry& head = *codec.head;
  add_centre(codec.format->centre, head.rotary, tile_centre, head.head_dim, -1.0f, rows);
  if (format::k_codec(codec.format->k).frame == Frame::kRotated) {
    codec.kernels->rotate(rows, kTileTokens, head.head_dim, head.rotation->signs());
  }
  codec.kernels->k_encode[static_cast<size_t>(codec.format->k)](rows, head.head_dim, options,
                                                                plane + codec.plane->k_tile(tile));
}

void encode_v(const TileCodec& codec, const format::EncodeOptions& options, int tile, float* rows, uint8_t* plane) {
  const format::HeadGeometry& head = *codec.head;
  if (format::v_codec(codec.format->v).frame == Frame::kRotated) {
    codec.kernels->rotate(rows, kTileTokens, head.head_dim, head.rotation->signs());
  }
  codec.kernels->v_encode[static_cast<size_t>(codec.format->v)](rows, head.head_dim, options,
                                                                plane + codec.plane->v_tile(tile));
}

}  // namespace varve::attention
