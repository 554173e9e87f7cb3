#include <cstring>

#include "format/fp8/e4m3.h"
#include "format/fp8/layout.h"
#include "format/row.h"

namespace varve::format::fp8 {

void encode(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  half_t scales[kTileTokens];
  for (int t = 0; t < kTileTokens; ++t) {
    const float* row = rows + t * head_dim;
    uint8_t* out = tile + t * head_dim;
    const float largest = absmax(row, head_dim);
    scales[t] = std::isfinite(largest) ? store_scale_up(largest / kMax) : kHalfNan;
    const float scale = half_to_float(scales[t]);
    if (!(scale > 0)) {  // a zero row, or a lost one
      std::memset(out, 0, static_cast<size_t>(head_dim));
      continue;
    }
    const float inverse = 1.0f / scale;
    for (int d = 0; d < head_dim; ++d) out[d] = e4m3_from_float(row[d] * inverse);
  }
  std::memcpy(tile + kTileTokens * head_dim, scales, sizeof(scales));
}

}  // namespace varve::format::fp8
