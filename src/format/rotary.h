#pragma once
// What the codecs must know of RoPE: which pairs turn, by how much per token. One table per distinct vector of
// effective frequencies (base, linear / YaRN scaling and frequency factors folded in; YaRN's magnitude drops out).

#include <vector>

#include "format/codec.h"

namespace varve::format {

class RotaryTable {
 public:
  /// theta: radians per token of each of n_rot/2 pairs. neox: pairs are (i, i + n_rot/2), else (2i, 2i+1).
  /// Dims from n_rot on do not turn.
  RotaryTable(std::vector<float> theta, int head_dim, bool neox);

  int head_dim() const { return head_dim_; }
  int pairs() const { return static_cast<int>(theta_.size()); }
  bool neox() const { return neox_; }
  const float* theta() const { return theta_.data(); }
  int first(int pair) const { return neox_ ? pair : 2 * pair; }
  int second(int pair) const { return neox_ ? pair + pairs() : 2 * pair + 1; }

  /// cos / sin of (t * theta_p) for t in [0, kTileTokens), fp32, [kTileTokens][pairs]: the turn inside a tile.
  const float* cos_in_tile() const { return cos_.data(); }
  const float* sin_in_tile() const { return sin_.data(); }
  /// cos / sin of (kTileTokens * theta_p), fp32, [pairs]: the constant turn from one tile to the next.
  const float* cos_tile_step() const { return cos_step_.data(); }
  const float* sin_tile_step() const { return sin_step_.data(); }

  /// row <- R(offset).row for `offset` tokens (negative undoes). Angles in double. [head_dim] in place.
  void turn(float* row, int offset) const;

  /// Hash of everything above; enters the page fingerprint.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  int head_dim_;
  bool neox_;
  std::vector<float> theta_, cos_, sin_, cos_step_, sin_step_;
  uint64_t fingerprint_;
};

}  // namespace varve::format
