#pragma once
// Many rows of logits compared at once, on several threads.

#include <span>
#include <vector>

#include "eval/divergence.h"

namespace varve::eval {

/// p, q: [rows][vocabulary]; next: the true next token of each row. The result does not depend on `threads` (0: all
/// processors).
std::vector<TokenDivergence> compare_rows(std::span<const float> p, std::span<const float> q, size_t vocabulary,
                                          std::span<const int32_t> next, int threads);

/// log p(token) under the softmax of one row.
double log_probability(std::span<const float> logits, int32_t token);

/// The most likely token, the lowest of equals.
int32_t greedy(std::span<const float> logits);

}  // namespace varve::eval
