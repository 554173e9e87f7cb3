#include <cstring>

#include "format/fp8/e4m3.h"
#include "format/fp8/layout.h"

namespace varve::format::fp8 {

void decode(const uint8_t* tile, int head_dim, float* rows) {
  half_t scales[kTileTokens];
  std::memcpy(scales, tile + kTileTokens * head_dim, sizeof(scales));
  for (int t = 0; t < kTileTokens; ++t) {
    const float scale = half_to_float(scales[t]);
    for (int d = 0; d < head_dim; ++d) rows[t * head_dim + d] = e4m3_to_float(tile[t * head_dim + d]) * scale;
  }
}

}  // namespace varve::format::fp8
