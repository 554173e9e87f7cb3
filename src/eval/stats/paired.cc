#include "eval/stats/paired.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "eval/stats/quantile.h"

namespace varve::eval {

double PairedCounts::delta() const { return n() == 0 ? 0 : static_cast<double>(wins - losses) / double(n()); }

PairedCounts count_pairs(std::span<const double> reference, std::span<const double> arm) {
  assert(reference.size() == arm.size());
  PairedCounts counts;
  for (size_t i = 0; i < reference.size(); ++i) {
    const bool was = reference[i] >= 0.5, is = arm[i] >= 0.5;
    ++(was ? (is ? counts.both_right : counts.losses) : (is ? counts.wins : counts.both_wrong));
  }
  return counts;
}

double mcnemar_exact(int64_t wins, int64_t losses) {
  const int64_t n = wins + losses;
  double tail = 0;  // P(X <= min) of X ~ Binomial(n, 1/2)
  for (int64_t k = 0; k <= std::min(wins, losses); ++k)
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) - n * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

Interval wilson(int64_t right, int64_t n, double confidence) {
  if (n == 0) return {0, 1};
  const double z = normal_quantile(0.5 + 0.5 * confidence), p = double(right) / double(n), zz = z * z / double(n);
  const double centre = p + 0.5 * zz, half = z * std::sqrt(p * (1 - p) / double(n) + 0.25 * zz / double(n));
  // At 0 and n the limits are 0 and 1 exactly, which rounding would miss.
  return {right == 0 ? 0 : (centre - half) / (1 + zz), right == n ? 1 : (centre + half) / (1 + zz)};
}

Interval newcombe_paired(const PairedCounts& counts, double confidence) {
  const int64_t n = counts.n();
  if (n == 0) return {-1, 1};
  const double a = double(counts.both_right), b = double(counts.wins), c = double(counts.losses),
               d = double(counts.both_wrong);
  const double p1 = (a + b) / double(n), p2 = (a + c) / double(n);
  const Interval w1 = wilson(counts.both_right + counts.wins, n, confidence);
  const Interval w2 = wilson(counts.both_right + counts.losses, n, confidence);

  // The correlation of the pairs, corrected towards zero where it is positive.
  double cross = a * d - b * c;
  if (cross > 0) cross = std::max(0.0, cross - 0.5 * double(n));
  const double margins = (a + b) * (c + d) * (a + c) * (b + d);
  const double phi = margins > 0 ? cross / std::sqrt(margins) : 0;

  const auto join = [&](double x, double y) { return std::sqrt(std::max(0.0, x * x - 2 * phi * x * y + y * y)); };
  const double delta = p1 - p2;
  return {std::max(-1.0, delta - join(p1 - w1.lo, w2.hi - p2)), std::min(1.0, delta + join(w1.hi - p1, p2 - w2.lo))};
}

}  // namespace varve::eval
