#pragma once
// Rejection sampling of drafted tokens (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
// algorithm 1): whatever the drafts are, what comes out is distributed as the model alone would have it.

#include <cstdint>
#include <span>

#include "model/sampler.h"

namespace varve::engine {

struct Verdict {
  bool accepted = false;
  int32_t token = 0;  ///< the draft, or what takes its place
};

/// A draw from `p`: the token in whose share of the sum `u` from [0, 1) falls. p is not empty and its probabilities
/// need not add up to 1.
int32_t draw(std::span<const model::TokenProbability> p, double u);

/// Judges a token that was drawn from `q` where `p` is wanted: accepted with probability min(1, p / q), else replaced
/// by a draw from norm(max(p - q, 0)). p, q: ascending tokens, probabilities that add up to 1. A draft that was chosen
/// instead of drawn has the one entry {draft, 1}. u_accept, u_draw: independent, uniform in [0, 1), and independent of
/// what drew the draft.
Verdict judge(std::span<const model::TokenProbability> p, std::span<const model::TokenProbability> q, int32_t draft,
              double u_accept, double u_draw);

}  // namespace varve::engine
