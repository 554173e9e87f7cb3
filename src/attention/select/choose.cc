#include "attention/select/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace varve::attention {

void choose_pages(const PageScores& scores, int first, int last, int k, std::span<RankedPage> order, uint8_t* chosen) {
  constexpr double kFirst = std::numeric_limits<double>::infinity();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int p = first; p < last; ++p) order[static_cast<size_t>(p - first)] = {0.0, p};
  const auto worth = [&](int p) -> double& { return order[static_cast<size_t>(p - first)].worth; };
  for (int h = 0; h < scores.heads; ++h) {
    const float* row = scores.log_sums + static_cast<size_t>(h) * static_cast<size_t>(scores.pages);
    const auto lost = [&](int p) { return std::isnan(row[p]) || row[p] == kInfinity; };
    float max = -kInfinity;
    for (int p = 0; p < scores.pages; ++p) {
      if (!lost(p)) {
        max = std::max(max, row[p]);
      } else if (p >= first && p < last) {
        worth(p) = kFirst;
      }
    }
    if (max == -kInfinity) continue;  // no page has weight for this head
    const auto weight = [&](int p) { return lost(p) ? 0.0 : std::exp(static_cast<double>(row[p] - max)); };
    double total = 0;
    for (int p = 0; p < scores.pages; ++p) total += weight(p);
    for (int p = first; p < last; ++p) worth(p) += weight(p) / total;
  }
  const int n = last - first;
  k = std::clamp(k, 0, n);
  std::partial_sort(order.begin(), order.begin() + k, order.begin() + n, [](const RankedPage& a, const RankedPage& b) {
    return a.worth != b.worth ? a.worth > b.worth : a.page < b.page;
  });
  std::fill_n(chosen, n, uint8_t{0});
  for (int i = 0; i < k; ++i) chosen[order[static_cast<size_t>(i)].page - first] = 1;
}

}  // namespace varve::attention
