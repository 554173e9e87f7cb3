#include "eval/stats/quantile.h"

#include <cmath>

namespace varve::eval {
namespace {

/// The continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), evaluated by Lentz's method.
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  const auto guarded = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / guarded(1 - (a + b) * x / (a + 1)), h = d;
  for (int m = 1; m < 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guarded(1 + even * d);
    c = guarded(1 + even / c);
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guarded(1 + odd * d);
    c = guarded(1 + odd / c);
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return h;
}

/// I_x(a, b).
double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast below the mean; above it the symmetry gives the other side.
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
  return 1 - front * beta_fraction(1 - x, b, a) / b;
}

/// The root of an increasing function by bisection, to the last bit that it resolves.
template <typename F>
double invert(const F& cdf, double p) {
  double hi = 1;
  while (cdf(hi) < p && hi < 1e12) hi *= 2;
  double lo = -1;
  while (cdf(lo) > p && lo > -1e12) lo *= 2;
  for (int i = 0; i < 200; ++i) {
    const double mid = 0.5 * (lo + hi);
    (cdf(mid) < p ? lo : hi) = mid;
  }
  return 0.5 * (lo + hi);
}

}  // namespace

double normal_quantile(double p) {
  return invert([](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }, p);
}

double student_t_cdf(double t, double freedom) {
  const double tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), 0.5 * freedom, 0.5);
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double p, double freedom) {
  return invert([&](double t) { return student_t_cdf(t, freedom); }, p);
}

}  // namespace varve::eval
