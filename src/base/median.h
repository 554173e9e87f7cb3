#pragma once

#include <algorithm>
#include <vector>

namespace varve {

/// Of an even number, the mean of the two in the middle; 0 of nothing.
inline double median(std::vector<double> x) {
  if (x.empty()) return 0;
  std::sort(x.begin(), x.end());
  const size_t n = x.size();
  return n % 2 != 0 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

}  // namespace varve
