#pragma once
// The limit that a chi-square statistic passes once in a million.

#include <cmath>

namespace varve::testing {

/// Wilson and Hilferty's approximation of the quantile at 1 - 1e-6, for `freedom` degrees (at least 1): within a few
/// per cent of the true one, which is enough to tell a wrong sampler from a right one.
inline double chi_square_limit(int freedom) {
  if (freedom < 1) return 1e-9;
  const double k = freedom, z = 4.7534, a = 2 / (9 * k);
  return k * std::pow(1 - a + z * std::sqrt(a), 3);
}

}  // namespace varve::testing
