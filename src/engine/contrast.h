#pragma once
// Contrastive decoding (context-aware decoding, Shi et al.): what the context changes about the answer counts more.

#include <span>

#include "varve/engine.h"

namespace varve::engine {

struct Contrast {
  static constexpr double kMostWeight = 10;
  double weight = 0;                    ///< a; 0: off
  int tokens = 32;                      ///< of an answer: those after them are sampled as without contrast
  SessionId prior = 0;                  ///< reads the answer too; its tokens are the same prompt without the context
  std::span<const float> prior_logits;  ///< of the prior's last token, [vocabulary]
};

/// kInvalidArgument: a weight that is negative, no number or above kMostWeight, no tokens.
Status check_contrast(double weight, int tokens);

/// logits = (1 + weight) logits - weight prior, both [vocabulary]. A token that either excludes (-infinity) keeps its
/// logit.
void apply_contrast(std::span<float> logits, std::span<const float> prior, double weight);

}  // namespace varve::engine
