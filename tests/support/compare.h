#pragma once
// Distances between two runs' logits.

#include <span>
#include <vector>

namespace varve::testing {

/// KL(p || q) in nats of the softmax of two rows of logits; infinite when either holds a NaN.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

/// Of two runs over the same tokens, position by position.
struct Distance {
  double mean_kl = 0, max_kl = 0;
  double max_delta_logit = 0;
};
Distance distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b);

/// Index of the highest logit (lowest index on ties), and its lead over the second.
struct Top {
  int token = 0;
  double margin = 0;
};
Top top(std::span<const float> logits);

}  // namespace varve::testing
