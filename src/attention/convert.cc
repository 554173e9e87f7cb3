#include "attention/convert.h"

#include <algorithm>

#include "attention/tile_codec.h"

namespace varve::attention {
namespace {

using format::kTileTokens;

TileCodec codec_of(const format::LayerGeometry& geometry, const format::SlotLayout& layout,
                   const kernels::Kernels& kernels, int ordinal) {
  const format::LayerSlot& slot = layout.layers[static_cast<size_t>(ordinal)];
  return {&slot.format, &slot.plane, &geometry.head, &kernels};
}

/// Encodes the page whose plain rows read_keys(tile, rows) and read_values(tile, rows) give.
template <typename ReadKeys, typename ReadValues>
void encode_plane(const TileCodec& to, const format::EncodeOptions& options, int exact_tokens,
                  const ReadKeys& read_keys, const ReadValues& read_values, uint8_t* plane, float* scratch) {
  const int head_dim = to.head->head_dim, tiles = to.plane->tiles;
  const size_t tile_floats = static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim);
  float* keys = scratch;
  float* values = keys + static_cast<size_t>(tiles) * tile_floats;
  float* tile_centre = values + tile_floats;
  for (int i = 0; i < tiles; ++i) read_keys(i, keys + static_cast<size_t>(i) * tile_floats);
  write_centre(to, keys + static_cast<size_t>(exact_tokens) * static_cast<size_t>(head_dim),
               tiles * kTileTokens - exact_tokens, exact_tokens, plane);
  for (int i = 0; i < tiles; ++i) {
    read_tile_centre(to, plane, i, tile_centre);  // as stored: the encoder subtracts what readers will add back
    encode_k(to, options, i, tile_centre, keys + static_cast<size_t>(i) * tile_floats, plane);
    read_values(i, values);
    encode_v(to, options, i, values, plane);
  }
}

}  // namespace

BlockHead block_head(const format::LayerGeometry& geometry, const format::SlotLayout& layout, int ordinal, int kv_head,
                     const uint8_t* slot) {
  const format::LayerSlot& l = layout.layers[static_cast<size_t>(ordinal)];
  return {slot + l.offset, format::block_shape(geometry, l.format, layout.page_tokens), kv_head};
}

size_t convert_scratch_floats(int head_dim, int page_tokens) {
  // Keys of the page, values of a tile, the centre turned to a tile, keys of a tile on their way out of a block.
  return static_cast<size_t>(head_dim) * static_cast<size_t>(page_tokens + 2 * kTileTokens + 1);
}

void convert_plane(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                   const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                   const kernels::Kernels& kernels, int ordinal, int kv_head, int exact_tokens, const uint8_t* src,
                   uint8_t* dst, float* scratch) {
  const TileCodec from = codec_of(geometry, src_layout, kernels, ordinal);
  const uint8_t* src_plane = src + src_layout.plane(ordinal, kv_head);
  float* tile_centre =
      scratch + static_cast<size_t>(geometry.head.head_dim) * static_cast<size_t>(src_layout.page_tokens + kTileTokens);
  encode_plane(
      codec_of(geometry, dst_layout, kernels, ordinal), options, exact_tokens,
      [&](int tile, float* rows) {
        read_tile_centre(from, src_plane, tile, tile_centre);
        decode_k(from, tile, src_plane, tile_centre, rows);
      },
      [&](int tile, float* rows) { decode_v(from, tile, src_plane, rows); }, dst + dst_layout.plane(ordinal, kv_head),
      scratch);
}

void convert_from_block(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                        const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                        const kernels::Kernels& kernels, const PageTurn* turn, int ordinal, int kv_head,
                        int exact_tokens, const uint8_t* src, uint8_t* dst, BlockReader& reader, float* scratch) {
  const int head_dim = geometry.head.head_dim;
  const BlockHead from = block_head(geometry, src_layout, ordinal, kv_head, src);
  float* keys = scratch + static_cast<size_t>(head_dim) * static_cast<size_t>(src_layout.page_tokens + kTileTokens + 1);
  reader.forget();
  encode_plane(
      codec_of(geometry, dst_layout, kernels, ordinal), options, exact_tokens,
      [&](int tile, float* rows) {
        reader.keys(kernels, from, tile, turn, kTileTokens, keys);
        kernels.transpose(head_dim, kTileTokens, keys, kTileTokens, rows, head_dim);
      },
      [&](int tile, float* rows) { reader.values(kernels, from, tile, rows); },
      dst + dst_layout.plane(ordinal, kv_head), scratch);
}

size_t block_scratch_floats(const format::LayerGeometry& geometry, const format::LowRank& format, int page_tokens,
                            const format::EncodeOptions& options) {
  const format::BlockShape shape{page_tokens, geometry.kv_heads, geometry.head.head_dim, format};
  const auto dim = static_cast<size_t>(geometry.head.head_dim);
  // K and V of the page, a tile on its way there, its centre.
  return static_cast<size_t>(page_tokens) * static_cast<size_t>(shape.width()) + (kTileTokens + 1) * dim +
         format::encode_scratch_floats(shape, options.low_rank);
}

format::BlockReport convert_to_block(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                                     const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                                     const format::TokenTraits& traits, const kernels::Kernels& kernels,
                                     const PageTurn* turn, int ordinal, int exact_tokens, const uint8_t* src,
                                     uint8_t* dst, float* scratch) {
  const TileCodec from = codec_of(geometry, src_layout, kernels, ordinal);
  const format::BlockShape shape = block_head(geometry, dst_layout, ordinal, 0, dst).shape;
  const auto dim = static_cast<size_t>(geometry.head.head_dim);
  const size_t row = static_cast<size_t>(geometry.kv_heads) * dim;
  float* keys = scratch;
  float* values = keys + static_cast<size_t>(src_layout.page_tokens) * row;
  float* tile_rows = values + static_cast<size_t>(src_layout.page_tokens) * row;
  float* tile_centre = tile_rows + kTileTokens * dim;
  for (int h = 0; h < geometry.kv_heads; ++h) {
    const uint8_t* plane = src + src_layout.plane(ordinal, h);
    for (int i = 0; i < from.plane->tiles; ++i) {
      const size_t at = static_cast<size_t>(i) * kTileTokens * row + static_cast<size_t>(h) * dim;
      const auto place = [&](float* joint) {
        for (size_t t = 0; t < kTileTokens; ++t) std::copy_n(tile_rows + t * dim, dim, joint + at + t * row);
      };
      read_tile_centre(from, plane, i, tile_centre);
      decode_k(from, i, plane, tile_centre, tile_rows);
      if (!shape.format.rotated && turn != nullptr) turn->to_page_start(i, tile_rows);
      place(keys);
      decode_v(from, i, plane, tile_rows);
      place(values);
    }
  }
  return format::encode_block(shape, options.low_rank, traits, exact_tokens, keys, values, kernels.gemm,
                              tile_centre + dim, dst + dst_layout.layers[static_cast<size_t>(ordinal)].offset);
}

}  // namespace varve::attention
