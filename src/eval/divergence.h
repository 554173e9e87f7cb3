#pragma once
// How far one next-token distribution is from another, token by token, and the summary of many.

#include <cstdint>
#include <span>
#include <vector>

namespace varve::eval {

/// One position's comparison of a reference distribution p with an arm's q, both given as logits.
struct TokenDivergence {
  double kl = 0;          ///< KL(p || q) in nats
  double max_delta = 0;   ///< largest |logit_p - logit_q|
  bool same_top = false;  ///< both name the same most likely token
  double nll_p = 0;       ///< -log p(next), 0 when no next token is given
  double nll_q = 0;
};

/// p, q: logits of the same vocabulary. next: the true next token, or -1.
TokenDivergence compare_logits(std::span<const float> p, std::span<const float> q, int32_t next);

struct DivergenceSummary {
  int64_t n = 0;
  double mean = 0, median = 0, p99 = 0, p999 = 0, max = 0;
  double same_top = 0;   ///< share, 0..1
  double ppl_p = 0;      ///< exp(mean nll_p)
  double ppl_ratio = 0;  ///< exp(mean nll_q - mean nll_p)
  double max_delta = 0;
};

/// Percentiles by nearest rank. Empty input gives n = 0 and zeros.
DivergenceSummary summarize(std::span<const TokenDivergence> tokens);

}  // namespace varve::eval
