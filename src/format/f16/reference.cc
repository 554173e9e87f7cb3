#include <cstring>

#include "format/f16/layout.h"

namespace varve::format::f16 {

void decode(const uint8_t* tile, int head_dim, float* rows) {
  const size_t n = static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim);
  for (size_t i = 0; i < n; ++i) {
    half_t h;
    std::memcpy(&h, tile + i * sizeof(half_t), sizeof(h));
    rows[i] = half_to_float(h);
  }
}

}  // namespace varve::format::f16
