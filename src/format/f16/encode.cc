#include <cstring>

#include "format/f16/layout.h"

namespace varve::format::f16 {

void encode(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  const size_t n = static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim);
  for (size_t i = 0; i < n; ++i) {
    const half_t h = float_to_half(rows[i]);
    std::memcpy(tile + i * sizeof(half_t), &h, sizeof(h));
  }
}

}  // namespace varve::format::f16
