#pragma once
// Turns whole tiles of keys between the frame of their page's first position (RoPE of page offset 0), where un-rotated
// low-rank blocks live, and their own positions. Only the pairs that RoPE turns; the other dims stay.

#include <vector>

#include "format/rotary.h"
#include "kernels/cpu/kernels.h"

namespace varve::attention {

class PageTurn {
 public:
  /// tiles: of a page. `rotary` outlives the object.
  PageTurn(const format::RotaryTable& rotary, int tiles);

  /// keys: [head_dim][stride], of which columns [0, kTileTokens) are the tokens of `tile`: each is turned to its
  /// position.
  void to_positions(const kernels::Kernels& kernels, int tile, float* keys, int stride) const;
  /// rows: [kTileTokens][head_dim] keys of `tile` at their positions: turned back.
  void to_page_start(int tile, float* rows) const;

 private:
  const format::RotaryTable* rotary_;
  std::vector<float> cos_in_tile_, sin_in_tile_;  ///< [pairs][kTileTokens]
  std::vector<float> cos_tile_, sin_tile_;        ///< [tiles][pairs] of the angle from page start to the tile's start
};

}  // namespace varve::attention
