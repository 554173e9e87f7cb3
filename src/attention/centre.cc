#include "attention/centre.h"

#include <array>
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
/// A pair that turns less than this from the middle of a tile to its ends is a polynomial there, to 1e-7: the error of
/// the cosine is about angle^8 / (8! 2^7).
constexpr double kMostSlowAngle = 0.9;

using Powers = std::array<double, kernels::kCurvePowers>;

/// Coefficients of the polynomial through f at the Chebyshev nodes of [0, 1], by powers.
template <typename F>
Powers fit_powers(const F& f) {
  constexpr size_t n = kernels::kCurvePowers;
  Powers node, divided, powers = {};
  for (size_t i = 0; i < n; ++i) {
    node[i] = 0.5 + 0.5 * std::cos(M_PI * (static_cast<double>(i) + 0.5) / n);
    divided[i] = f(node[i]);
  }
  for (size_t order = 1; order < n; ++order) {
    for (size_t i = n - 1; i >= order; --i) divided[i] = (divided[i] - divided[i - 1]) / (node[i] - node[i - order]);
  }
  for (size_t i = n; i-- > 0;) {  // Newton's form, from the inside out: powers <- powers (y - node) + divided
    for (size_t k = n - 1; k > 0; --k) powers[k] = powers[k - 1] - node[i] * powers[k];
    powers[0] = divided[i] - node[i] * powers[0];
  }
  return powers;
}

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
  const auto pairs = static_cast<size_t>(rotary.pairs());
  const auto padded = static_cast<size_t>(kernels::curve_padded(rotary.pairs()));
  const auto angles = [&](double offset, size_t n, std::vector<float>* cosines, std::vector<float>* sines) {
    for (size_t p = 0; p < n; ++p) {
      const double angle = p < pairs ? static_cast<double>(rotary.theta()[p]) * offset : 0;
      cosines->push_back(p < pairs ? static_cast<float>(std::cos(angle)) : 0);
      sines->push_back(static_cast<float>(std::sin(angle)));
    }
  };
  for (int tile = 0; tile < tiles; ++tile) {
    angles(tile * kTileTokens, pairs, &cos_, &sin_);
    angles(tile * kTileTokens + kMiddle, padded, &middle_cos_, &middle_sin_);
  }
  for (size_t p = 0; p < pairs; ++p) {
    if (static_cast<double>(rotary.theta()[p]) * kMiddle > kMostSlowAngle) {
      fast_ = kernels::curve_padded(static_cast<int>(p) + 1);
    }
  }
  const auto fast = static_cast<size_t>(fast_);
  even_.resize((fast + kernels::kCurvePowers) * kHalfTile);
  odd_.resize(even_.size());
  for (size_t j = 0; j < kHalfTile; ++j) {
    std::vector<float> cosines, sines;
    const double x = static_cast<double>(j) + 0.5;
    angles(x, fast, &cosines, &sines);
    double power = 1;  // of x / kMiddle
    for (size_t row = 0; row < fast + kernels::kCurvePowers; ++row) {
      even_[row * kHalfTile + j] = row < fast ? cosines[row] : static_cast<float>(power);
      odd_[row * kHalfTile + j] = row < fast ? sines[row] : static_cast<float>(power * x / kMiddle);
      if (row >= fast) power *= x / kMiddle * (x / kMiddle);
    }
  }
  const size_t slow = padded - fast;
  even_powers_.resize(slow * kernels::kCurvePowers);
  odd_powers_.resize(even_powers_.size());
  for (size_t p = fast; p < pairs; ++p) {
    const double angle = static_cast<double>(rotary.theta()[p]) * kMiddle;
    const Powers even = fit_powers([&](double y) { return std::cos(angle * std::sqrt(y)); });
    const Powers odd = fit_powers([&](double y) { return std::sin(angle * std::sqrt(y)) / std::sqrt(y); });
    for (size_t k = 0; k < even.size(); ++k) {
      even_powers_[k * slow + p - fast] = static_cast<float>(even[k]);
      odd_powers_[k * slow + p - fast] = static_cast<float>(odd[k]);
    }
  }
}

void CentreCurve::page_terms(const kernels::Kernels& kernels, const float* q, const float* u, float* page) const {
  kernels.curve_terms(q, u, rotary_->head_dim(), rotary_->pairs(), rotary_->neox(), page);
}

void CentreCurve::add_to_scores(const kernels::Kernels& kernels, int group, const float* page, int tile,
                                float* scores) const {
  const size_t at = static_cast<size_t>(tile) * static_cast<size_t>(kernels::curve_padded(rotary_->pairs()));
  const kernels::CurveTable table{rotary_->pairs(),        fast_,       middle_cos_.data() + at,
                                  middle_sin_.data() + at, even_.data(), odd_.data(),
                                  even_powers_.data(),     odd_powers_.data()};
  kernels.add_curve(table, group, page, scores);
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
