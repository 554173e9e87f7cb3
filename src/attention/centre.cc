#include "attention/centre.h"

#include <cmath>
#include <cstddef>

namespace varve::attention {

using format::Centre;
using format::kTileTokens;
using format::RotaryTable;

namespace {

constexpr int kHalfTile = kTileTokens / 2;
/// Offset of a tile's middle from its first token.
constexpr double kMiddle = (kTileTokens - 1) / 2.0;

}  // namespace

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

CentreCurve::CentreCurve(const RotaryTable& rotary, int tiles) : rotary_(&rotary) {
  const auto angles = [&](double offset, std::vector<float>* cosines, std::vector<float>* sines) {
    for (int p = 0; p < rotary.pairs(); ++p) {
      const double angle = static_cast<double>(rotary.theta()[p]) * offset;
      cosines->push_back(static_cast<float>(std::cos(angle)));
      sines->push_back(static_cast<float>(std::sin(angle)));
    }
  };
  for (int tile = 0; tile < tiles; ++tile) {
    angles(tile * kTileTokens, &cos_, &sin_);
    angles(tile * kTileTokens + kMiddle, &middle_cos_, &middle_sin_);
  }
  const auto pairs = static_cast<size_t>(rotary.pairs());
  even_.assign((pairs + 1) * kHalfTile, 1.0f);
  odd_.resize(pairs * kHalfTile);
  for (size_t j = 0; j < kHalfTile; ++j) {
    std::vector<float> cosines, sines;
    angles(static_cast<double>(j) + 0.5, &cosines, &sines);
    for (size_t p = 0; p < pairs; ++p) {
      even_[p * kHalfTile + j] = cosines[p];
      odd_[p * kHalfTile + j] = sines[p];
    }
  }
}

void CentreCurve::page_coefficients(const float* q, const float* u, float* page) const {
  const int pairs = rotary_->pairs();
  float* a = page;
  float* b = page + pairs + 1;
  for (int p = 0; p < pairs; ++p) {
    const int i = rotary_->first(p), j = rotary_->second(p);
    a[p] = q[i] * u[i] + q[j] * u[j];
    b[p] = q[j] * u[i] - q[i] * u[j];
  }
  a[pairs] = 0;
  for (int d = 2 * pairs; d < rotary_->head_dim(); ++d) a[pairs] += q[d] * u[d];
}

void CentreCurve::add_to_scores(const kernels::Kernels& kernels, int group, const float* page, int tile,
                                float* scratch, float* scores) const {
  const int pairs = rotary_->pairs();
  const float* c = middle_cos_.data() + static_cast<size_t>(tile) * static_cast<size_t>(pairs);
  const float* s = middle_sin_.data() + static_cast<size_t>(tile) * static_cast<size_t>(pairs);
  for (int g = 0; g < group; ++g) {
    const float* a = page + static_cast<size_t>(g) * static_cast<size_t>(terms());
    const float* b = a + pairs + 1;
    float* turned_a = scratch + static_cast<size_t>(g) * static_cast<size_t>(terms());
    float* turned_b = turned_a + pairs + 1;
    for (int p = 0; p < pairs; ++p) {
      turned_a[p] = a[p] * c[p] + b[p] * s[p];
      turned_b[p] = b[p] * c[p] - a[p] * s[p];
    }
    turned_a[pairs] = a[pairs];
  }
  // even: the curve's part that is the same on both sides of the middle; odd: the part that changes sign.
  float* even = scratch + static_cast<size_t>(group) * static_cast<size_t>(terms());
  float* odd = even + static_cast<size_t>(group) * kHalfTile;
  kernels.gemm(group, kHalfTile, pairs + 1, scratch, terms(), even_.data(), kHalfTile, even, kHalfTile, false);
  kernels.gemm(group, kHalfTile, pairs, scratch + pairs + 1, terms(), odd_.data(), kHalfTile, odd, kHalfTile, false);
  for (int g = 0; g < group; ++g) {
    float* right = scores + g * kTileTokens + kHalfTile;
    float* left = right - 1;
    for (int j = 0; j < kHalfTile; ++j) right[j] += even[g * kHalfTile + j] + odd[g * kHalfTile + j];
    for (int j = 0; j < kHalfTile; ++j) left[-j] += even[g * kHalfTile + j] - odd[g * kHalfTile + j];
  }
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
