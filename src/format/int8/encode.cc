#include <cstring>

#include "format/int8/layout.h"
#include "format/row.h"

namespace varve::format::int8 {
namespace {

/// codes: [head_dim]. Returns the stored scale; a zero or lost row gets zero codes.
half_t encode_row(const float* row, int head_dim, uint8_t* codes) {
  const float largest = absmax(row, head_dim);
  const half_t stored = std::isfinite(largest) ? store_scale_up(largest / 127.0f) : kHalfNan;
  const float scale = half_to_float(stored);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  if (inverse == 0) {
    std::memset(codes, 0, static_cast<size_t>(head_dim));
    return stored;
  }
  for (int d = 0; d < head_dim; ++d) {
    codes[d] = static_cast<uint8_t>(static_cast<int8_t>(static_cast<int>(round_even(row[d] * inverse))));
  }
  return stored;
}

}  // namespace

void encode_k(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  half_t scales[kTileTokens];
  uint8_t codes[kMaxHeadDim];
  for (int t = 0; t < kTileTokens; ++t) {
    scales[t] = encode_row(rows + t * head_dim, head_dim, codes);
    planar::place_k(codes, head_dim, t, tile);  // a plane of 8 bits is the codes in unit order
  }
  std::memcpy(tile + planar::bytes(head_dim, 8), scales, sizeof(scales));
}

void encode_v(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  half_t scales[kTileTokens];
  uint8_t codes[kMaxHeadDim];
  for (int t = 0; t < kTileTokens; ++t) {
    scales[t] = encode_row(rows + t * head_dim, head_dim, codes);
    planar::place_v(codes, head_dim, t, tile);
  }
  std::memcpy(tile + planar::bytes(head_dim, 8), scales, sizeof(scales));
}

}  // namespace varve::format::int8
