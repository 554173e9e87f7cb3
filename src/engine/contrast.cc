#include "engine/contrast.h"

#include <cmath>
#include <string>

namespace varve::engine {

Status check_contrast(double weight, int tokens) {
  if (!(weight >= 0 && weight <= Contrast::kMostWeight)) {
    return invalid_argument("a contrast of " + std::to_string(weight) + "; it must be 0 (off) to " +
                            std::to_string(Contrast::kMostWeight));
  }
  if (tokens < 1) return invalid_argument("contrast for " + std::to_string(tokens) + " tokens; it must be 1 or more");
  return {};
}

void apply_contrast(std::span<float> logits, std::span<const float> prior, double weight) {
  const auto a = static_cast<float>(weight);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -INFINITY || prior[i] == -INFINITY) continue;
    logits[i] = (1 + a) * logits[i] - a * prior[i];
  }
}

}  // namespace varve::engine
