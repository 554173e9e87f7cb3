#pragma once
// Arithmetic of the K centre: fast forms of what format/plane.h defines. u is the stored centre of a plane; R(o) turns a
// key by o tokens. The encoder subtracts R(o).u, readers that decode add it back, and readers that score add
//   q.R(o)u = sum over pairs (i, j) of a cos(o theta) + b sin(o theta),  a = q_i u_i + q_j u_j,  b = q_j u_i - q_i u_j,
// plus q_d u_d for the dims that do not turn. Everything in fp32: |u| reaches 900 and leaves no room for less.

#include <vector>

#include "format/layout.h"

namespace varve::attention {

/// rows: [kTileTokens][head_dim]. rows[t] += sign * R(t).u for kRotary, sign * u for kPost.
/// u: [head_dim], already turned to the first row of the tile.
void add_centre(format::Centre centre, const format::RotaryTable* rotary, const float* u, int head_dim, float sign,
                float* rows);

/// The centre of `n` plain key rows ([n][head_dim], the first at page offset `offset`) before rounding; rows that are
/// not finite are left out, and no row at all gives zero. Fast form of format::write_centre.
/// Call begin, then add for consecutive ranges (each within one tile) from the LAST tile to the first, then finish.
class CentreMean {
 public:
  CentreMean(format::Centre centre, const format::RotaryTable* rotary, int head_dim);
  /// rows: [n][head_dim] that sit at tile offsets [first, first + n) of the tile before the one added last.
  void add_tile(const float* rows, int first, int n);
  /// mean: [head_dim].
  void finish(float* mean) const;

 private:
  void accumulate(const float* row, int t);

  format::Centre centre_;
  const format::RotaryTable* rotary_;
  std::vector<float> sum_, tile_;
  int count_ = 0;
};

/// Readers' side of a rotary centre: coefficients per (query head, page), turned from tile to tile, against one basis.
class CentreCurve {
 public:
  /// tiles: of a page.
  CentreCurve(const format::RotaryTable& rotary, int tiles);

  const format::RotaryTable& rotary() const { return *rotary_; }
  int terms() const { return 2 * rotary_->pairs() + 1; }
  /// [terms][kTileTokens]: a row of cos and a row of sin per pair (cosines first), then ones.
  const float* basis() const { return basis_.data(); }

  /// q, u: [head_dim], q in the plain frame. coefficients: [terms] at the first tile of the page.
  void page_coefficients(const float* q, const float* u, float* coefficients) const;
  /// Turns page coefficients to tile `tile`: scores[t] += sum_i out[i] * basis[i][t].
  void tile_coefficients(const float* page, int tile, float* out) const;
  /// out <- R(64 tile).u, [head_dim].
  void turn(const float* u, int tile, float* out) const;

 private:
  const format::RotaryTable* rotary_;
  std::vector<float> basis_;
  std::vector<float> cos_, sin_;  ///< [tiles][pairs] of (64 tile theta_p)
};

}  // namespace varve::attention
