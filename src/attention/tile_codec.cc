#include "attention/tile_codec.h"

#include <cstring>

namespace varve::attention {
namespace {

using format::Centre;
using format::Frame;
using format::kTileTokens;

}  // namespace

void read_centre(const TileCodec& codec, const uint8_t* plane, float* u) {
  codec.kernels->f16_to_f32(centre_row(plane), u, static_cast<size_t>(codec.head->head_dim));
}

void read_tile_centre(const TileCodec& codec, const uint8_t* plane, int tile, float* tile_centre) {
  if (codec.format->centre == Centre::kNone) return;
  read_centre(codec, plane, tile_centre);
  if (codec.format->centre == Centre::kRotary) codec.head->rotary->turn(tile_centre, tile * kTileTokens);
}

void write_centre(const TileCodec& codec, const float* k_rows, int n, int offset, uint8_t* plane) {
  if (codec.format->centre == Centre::kNone) return;
  format::write_centre(*codec.format, *codec.head, k_rows, n, offset, plane);
  const size_t used = static_cast<size_t>(codec.head->head_dim) * sizeof(half_t);
  std::memset(plane + used, 0, codec.plane->k_header_bytes - used);  // slots are reused: no trace of what was there
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
