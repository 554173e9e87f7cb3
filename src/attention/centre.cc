#include "attention/centre.h"

#include <cmath>
#include <cstring>

namespace varve::attention {

using format::Centre;
using format::kTileTokens;
using format::RotaryTable;

void add_centre(Centre centre, const RotaryTable* rotary, const float* u, int head_dim, float sign, float* rows) {
  if (centre == Centre::kNone) return;
  const int pairs = centre == Centre::kRotary ? rotary->pairs() : 0;
  const int turned = 2 * pairs;
  for (int t = 0; t < kTileTokens; ++t) {
    float* row = rows + static_cast<size_t>(t) * head_dim;
    for (int d = turned; d < head_dim; ++d) row[d] += sign * u[d];
    if (pairs == 0) continue;
    const float* c = rotary->cos_in_tile() + static_cast<size_t>(t) * pairs;
    const float* s = rotary->sin_in_tile() + static_cast<size_t>(t) * pairs;
    if (rotary->neox()) {
      for (int p = 0; p < pairs; ++p) {
        row[p] += sign * (u[p] * c[p] - u[p + pairs] * s[p]);
        row[p + pairs] += sign * (u[p] * s[p] + u[p + pairs] * c[p]);
      }
    } else {
      for (int p = 0; p < pairs; ++p) {
        row[2 * p] += sign * (u[2 * p] * c[p] - u[2 * p + 1] * s[p]);
        row[2 * p + 1] += sign * (u[2 * p] * s[p] + u[2 * p + 1] * c[p]);
      }
    }
  }
}

CentreMean::CentreMean(Centre centre, const RotaryTable* rotary, int head_dim)
    : centre_(centre), rotary_(rotary), sum_(static_cast<size_t>(head_dim), 0.0f), tile_(sum_) {}

void CentreMean::accumulate(const float* row, int t) {
  const int head_dim = static_cast<int>(tile_.size());
  const int pairs = centre_ == Centre::kRotary ? rotary_->pairs() : 0;
  for (int d = 2 * pairs; d < head_dim; ++d) tile_[static_cast<size_t>(d)] += row[d];
  if (pairs == 0) return;
  const float* c = rotary_->cos_in_tile() + static_cast<size_t>(t) * pairs;
  const float* s = rotary_->sin_in_tile() + static_cast<size_t>(t) * pairs;
  for (int p = 0; p < pairs; ++p) {
    const int i = rotary_->first(p), j = rotary_->second(p);
    tile_[static_cast<size_t>(i)] += row[i] * c[p] + row[j] * s[p];
    tile_[static_cast<size_t>(j)] += row[j] * c[p] - row[i] * s[p];
  }
}

void CentreMean::add_tile(const float* rows, int first, int n) {
  const size_t head_dim = tile_.size();
  std::memset(tile_.data(), 0, head_dim * sizeof(float));
  for (int t = 0; t < n; ++t) {
    const float* row = rows + static_cast<size_t>(t) * head_dim;
    float probe = 0;  // finite * 0 sums to 0, anything else to NaN
    for (size_t d = 0; d < head_dim; ++d) probe += row[d] * 0.0f;
    if (probe != 0.0f) continue;
    accumulate(row, first + t);
    ++count_;
  }
  // Horner over tiles: sum = tile + R(-64).sum of the later tiles.
  if (centre_ == Centre::kRotary) {
    const float* c = rotary_->cos_tile_step();
    const float* s = rotary_->sin_tile_step();
    for (int p = 0; p < rotary_->pairs(); ++p) {
      float& x = sum_[static_cast<size_t>(rotary_->first(p))];
      float& y = sum_[static_cast<size_t>(rotary_->second(p))];
      const float turned_x = x * c[p] + y * s[p];
      y = y * c[p] - x * s[p];
      x = turned_x;
    }
  }
  for (size_t d = 0; d < head_dim; ++d) sum_[d] += tile_[d];
}

void CentreMean::finish(float* mean) const {
  const float scale = count_ > 0 ? 1.0f / static_cast<float>(count_) : 0.0f;
  for (size_t d = 0; d < sum_.size(); ++d) mean[d] = sum_[d] * scale;
}

CentreCurve::CentreCurve(const RotaryTable& rotary, int tiles) : rotary_(&rotary) {
  const int pairs = rotary.pairs();
  basis_.resize(static_cast<size_t>(terms()) * kTileTokens);
  for (int t = 0; t < kTileTokens; ++t) {
    for (int p = 0; p < pairs; ++p) {
      const size_t at = static_cast<size_t>(t) * pairs + p;
      basis_[static_cast<size_t>(p) * kTileTokens + t] = rotary.cos_in_tile()[at];
      basis_[static_cast<size_t>(pairs + p) * kTileTokens + t] = rotary.sin_in_tile()[at];
    }
    basis_[static_cast<size_t>(2 * pairs) * kTileTokens + t] = 1.0f;
  }
  cos_.resize(static_cast<size_t>(tiles) * pairs);
  sin_.resize(cos_.size());
  for (int i = 0; i < tiles; ++i) {
    for (int p = 0; p < pairs; ++p) {
      const double angle = static_cast<double>(rotary.theta()[p]) * kTileTokens * i;
      cos_[static_cast<size_t>(i) * pairs + p] = static_cast<float>(std::cos(angle));
      sin_[static_cast<size_t>(i) * pairs + p] = static_cast<float>(std::sin(angle));
    }
  }
}

void CentreCurve::page_coefficients(const float* q, const float* u, float* coefficients) const {
  const int pairs = rotary_->pairs();
  for (int p = 0; p < pairs; ++p) {
    const int i = rotary_->first(p), j = rotary_->second(p);
    coefficients[p] = q[i] * u[i] + q[j] * u[j];
    coefficients[pairs + p] = q[j] * u[i] - q[i] * u[j];
  }
  float rest = 0;
  for (int d = 2 * pairs; d < rotary_->head_dim(); ++d) rest += q[d] * u[d];
  coefficients[2 * pairs] = rest;
}

void CentreCurve::tile_coefficients(const float* page, int tile, float* out) const {
  const int pairs = rotary_->pairs();
  const float* c = cos_.data() + static_cast<size_t>(tile) * pairs;
  const float* s = sin_.data() + static_cast<size_t>(tile) * pairs;
  const float* a = page;
  const float* b = page + pairs;
  for (int p = 0; p < pairs; ++p) {
    out[p] = a[p] * c[p] + b[p] * s[p];
    out[pairs + p] = b[p] * c[p] - a[p] * s[p];
  }
  out[2 * pairs] = page[2 * pairs];
}

void CentreCurve::turn(const float* u, int tile, float* out) const {
  const int pairs = rotary_->pairs();
  const float* c = cos_.data() + static_cast<size_t>(tile) * pairs;
  const float* s = sin_.data() + static_cast<size_t>(tile) * pairs;
  for (int d = 2 * pairs; d < rotary_->head_dim(); ++d) out[d] = u[d];
  for (int p = 0; p < pairs; ++p) {
    const int i = rotary_->first(p), j = rotary_->second(p);
    out[i] = u[i] * c[p] - u[j] * s[p];
    out[j] = u[i] * s[p] + u[j] * c[p];
  }
}

}  // namespace varve::attention
