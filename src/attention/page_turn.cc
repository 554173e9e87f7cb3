#include "attention/page_turn.h"

#include <cmath>
#include <cstddef>

namespace varve::attention {

using format::kTileTokens;

PageTurn::PageTurn(const format::RotaryTable& rotary, int tiles) : rotary_(&rotary) {
  const auto pairs = static_cast<size_t>(rotary.pairs());
  cos_in_tile_.resize(pairs * kTileTokens);
  sin_in_tile_.resize(pairs * kTileTokens);
  for (size_t t = 0; t < kTileTokens; ++t) {
    for (size_t p = 0; p < pairs; ++p) {
      cos_in_tile_[p * kTileTokens + t] = rotary.cos_in_tile()[t * pairs + p];
      sin_in_tile_[p * kTileTokens + t] = rotary.sin_in_tile()[t * pairs + p];
    }
  }
  for (int tile = 0; tile < tiles; ++tile) {
    for (size_t p = 0; p < pairs; ++p) {
      const double angle = static_cast<double>(tile * kTileTokens) * static_cast<double>(rotary.theta()[p]);
      cos_tile_.push_back(static_cast<float>(std::cos(angle)));
      sin_tile_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void PageTurn::to_positions(const kernels::Kernels& kernels, int tile, float* keys, int stride) const {
  const int pairs = rotary_->pairs();
  for (int p = 0; p < pairs; ++p) {
    const auto at = static_cast<size_t>(tile * pairs + p);
    const size_t in_tile = static_cast<size_t>(p) * kTileTokens;
    kernels.turn(keys + static_cast<ptrdiff_t>(rotary_->first(p)) * stride,
                 keys + static_cast<ptrdiff_t>(rotary_->second(p)) * stride, kTileTokens, cos_tile_[at], sin_tile_[at],
                 cos_in_tile_.data() + in_tile, sin_in_tile_.data() + in_tile);
  }
}

void PageTurn::to_page_start(int tile, float* rows) const {
  const int pairs = rotary_->pairs();
  const bool neox = rotary_->neox();
  const float* tile_cos = cos_tile_.data() + static_cast<ptrdiff_t>(tile) * pairs;
  const float* tile_sin = sin_tile_.data() + static_cast<ptrdiff_t>(tile) * pairs;
  for (int t = 0; t < kTileTokens; ++t) {
    const float* c = rotary_->cos_in_tile() + static_cast<ptrdiff_t>(t) * pairs;
    const float* s = rotary_->sin_in_tile() + static_cast<ptrdiff_t>(t) * pairs;
    float* row = rows + static_cast<ptrdiff_t>(t) * rotary_->head_dim();
    for (int p = 0; p < pairs; ++p) {
      const float cosine = tile_cos[p] * c[p] - tile_sin[p] * s[p];
      const float sine = tile_sin[p] * c[p] + tile_cos[p] * s[p];
      float& x = row[neox ? p : 2 * p];
      float& y = row[neox ? p + pairs : 2 * p + 1];
      const float turned = x * cosine + y * sine;
      y = y * cosine - x * sine;
      x = turned;
    }
  }
}

}  // namespace varve::attention
