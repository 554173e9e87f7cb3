#include <cstring>

#include "format/tq/codebook.h"
#include "format/tq/layout.h"

namespace varve::format::tq {

template <int bits>
void decode_k(const uint8_t* tile, int head_dim, float* rows) {
  uint8_t codes[kMaxHeadDim * planar::kUnit];
  half_t norms[kTileTokens];
  planar::unpack<bits>(tile, head_dim, codes);
  std::memcpy(norms, tile + planar::bytes(head_dim, bits), sizeof(norms));
  for (int t = 0; t < kTileTokens; ++t) {
    const float unit = half_to_float(norms[t]) * kLevelUnit;
    for (int d = 0; d < head_dim; ++d) {
      rows[t * head_dim + d] = unit * static_cast<float>(kLevels<bits>[codes[planar::index(d, t, kTileTokens)]]);
    }
  }
}

template <int bits>
void decode_v(const uint8_t* tile, int head_dim, float* rows) {
  uint8_t codes[kMaxHeadDim * planar::kUnit];
  half_t scales[kTileTokens], zeros[kTileTokens];
  planar::unpack<bits>(tile, head_dim, codes);
  std::memcpy(scales, tile + planar::bytes(head_dim, bits), sizeof(scales));
  std::memcpy(zeros, tile + planar::bytes(head_dim, bits) + sizeof(scales), sizeof(zeros));
  for (int t = 0; t < kTileTokens; ++t) {
    const float unit = half_to_float(scales[t]) * kLevelUnit;
    const float zero = half_to_float(zeros[t]);
    for (int d = 0; d < head_dim; ++d) {
      rows[t * head_dim + d] = zero + unit * static_cast<float>(kLevels<bits>[codes[planar::index(t, d, head_dim)]]);
    }
  }
}

template void decode_k<6>(const uint8_t*, int, float*);
template void decode_k<5>(const uint8_t*, int, float*);
template void decode_k<4>(const uint8_t*, int, float*);
template void decode_k<3>(const uint8_t*, int, float*);
template void decode_k<2>(const uint8_t*, int, float*);
template void decode_v<4>(const uint8_t*, int, float*);
template void decode_v<3>(const uint8_t*, int, float*);
template void decode_v<2>(const uint8_t*, int, float*);

}  // namespace varve::format::tq
