#pragma once
// Arithmetic of the K centre: fast forms of what format/plane.h defines. u is the stored centre of a plane; R(o) turns a
// key by o tokens. The encoder subtracts R(o).u, readers that decode add it back, and readers that score add
//   q.R(o)u = sum over pairs (i, j) of a cos(o theta) + b sin(o theta),  a = q_i u_i + q_j u_j,  b = q_j u_i - q_i u_j,
// plus q_d u_d for the dims that do not turn. Everything in fp32: |u| reaches 900 and leaves no room for less.

#include <vector>

#include "format/layout.h"
#include "kernels/cpu/kernels.h"

namespace varve::attention {

/// format::add_centre, vectorised; the same bits. rows: [kTileTokens][head_dim]. rows[t] += sign * R(t).u for kRotary, sign * u for kPost.
/// u: [head_dim], already turned to the first row of the tile.
void add_centre(format::Centre centre, const format::RotaryTable* rotary, const float* u, int head_dim, float sign,
                float* rows);

/// Readers' side of a rotary centre: the tables of kernels::CurveTable for every tile of a page.
class CentreCurve {
 public:
  /// tiles: of a page.
  CentreCurve(const format::RotaryTable& rotary, int tiles);

  /// Floats of one head's terms.
  int terms() const { return kernels::curve_term_floats(rotary_->pairs()); }

  /// q, u: [head_dim], q in the plain frame. page: [terms].
  void page_terms(const kernels::Kernels& kernels, const float* q, const float* u, float* page) const;
  /// scores[g][t] += q_g.R(64 tile + t)u for `group` heads. page: [group][terms]; scores: [group][kTileTokens].
  void add_to_scores(const kernels::Kernels& kernels, int group, const float* page, int tile, float* scores) const;
  /// out <- R(64 tile).u, [head_dim].
  void turn(const float* u, int tile, float* out) const;

 private:
  const format::RotaryTable* rotary_;
  int fast_ = 0;
  std::vector<float> even_, odd_, even_powers_, odd_powers_;  ///< CurveTable
  std::vector<float> cos_, sin_;                ///< [tiles][pairs] of the angle from page start to a tile's start
  std::vector<float> middle_cos_, middle_sin_;  ///< [tiles][padded pairs] of the angle to a tile's middle
};

}  // namespace varve::attention
