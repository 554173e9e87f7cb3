#include <cstring>

#include "format/int8/layout.h"

namespace varve::format::int8 {
namespace {

void decode(const uint8_t* tile, int head_dim, bool k, float* rows) {
  half_t scales[kTileTokens];
  std::memcpy(scales, tile + planar::bytes(head_dim, 8), sizeof(scales));
  for (int t = 0; t < kTileTokens; ++t) {
    const float scale = half_to_float(scales[t]);
    for (int d = 0; d < head_dim; ++d) {
      const size_t at = k ? planar::index(d, t, kTileTokens) : planar::index(t, d, head_dim);
      rows[t * head_dim + d] = static_cast<float>(static_cast<int8_t>(tile[at])) * scale;
    }
  }
}

}  // namespace

void decode_k(const uint8_t* tile, int head_dim, float* rows) { decode(tile, head_dim, true, rows); }
void decode_v(const uint8_t* tile, int head_dim, float* rows) { decode(tile, head_dim, false, rows); }

}  // namespace varve::format::int8
