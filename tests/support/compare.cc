#include "support/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace varve::testing {
namespace {

/// log of the sum of exponentials, and the maximum it is relative to.
double log_sum_exp(std::span<const float> x) {
  const double highest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - highest);
  return highest + std::log(sum);
}

}  // namespace

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_norm = log_sum_exp(p_logits), q_norm = log_sum_exp(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_norm, log_q = q_logits[i] - q_norm;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  return std::isnan(kl) ? std::numeric_limits<double>::infinity() : std::max(kl, 0.0);
}

Distance distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  Distance d;
  if (a.size() != b.size()) {
    d.mean_kl = d.max_kl = d.max_delta_logit = std::numeric_limits<double>::infinity();
    return d;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const double kl = kl_divergence(a[i], b[i]);
    d.mean_kl += kl / static_cast<double>(a.size());
    d.max_kl = std::max(d.max_kl, kl);
    for (size_t j = 0; j < a[i].size(); ++j) {
      d.max_delta_logit = std::max(d.max_delta_logit, std::fabs(static_cast<double>(a[i][j]) - b[i][j]));
    }
  }
  return d;
}

Top top(std::span<const float> logits) {
  Top best;
  float second = -INFINITY;
  for (size_t i = 1; i < logits.size(); ++i) {
    const float lead = logits[static_cast<size_t>(best.token)];
    if (logits[i] > lead) {
      second = lead;
      best.token = static_cast<int>(i);
    } else {
      second = std::max(second, logits[i]);
    }
  }
  best.margin = static_cast<double>(logits[static_cast<size_t>(best.token)]) - second;
  return best;
}

}  // namespace varve::testing
