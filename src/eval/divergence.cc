#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

namespace varve::eval {
namespace {

struct Softmax {
  double log_sum = 0;  ///< log sum exp
  size_t top = 0;
};

Softmax softmax_of(std::span<const float> logits) {
  Softmax s;
  s.top = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const double max = logits[s.top];
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - max);
  s.log_sum = max + std::log(sum);
  return s;
}

}  // namespace

TokenDivergence compare_logits(std::span<const float> p, std::span<const float> q, int32_t next) {
  const Softmax sp = softmax_of(p), sq = softmax_of(q);
  TokenDivergence out;
  for (size_t i = 0; i < p.size(); ++i) {
    const double lp = double(p[i]) - sp.log_sum;
    const double lq = double(q[i]) - sq.log_sum;
    out.kl += std::exp(lp) * (lp - lq);
    out.max_delta = std::max(out.max_delta, std::abs(double(p[i]) - double(q[i])));
  }
  out.kl = std::max(out.kl, 0.0);  // rounding alone can push a zero below zero
  out.same_top = sp.top == sq.top;
  if (next >= 0) {
    out.nll_p = sp.log_sum - double(p[static_cast<size_t>(next)]);
    out.nll_q = sq.log_sum - double(q[static_cast<size_t>(next)]);
  }
  return out;
}

DivergenceSummary summarize(std::span<const TokenDivergence> tokens) {
  DivergenceSummary s;
  s.n = static_cast<int64_t>(tokens.size());
  if (tokens.empty()) return s;
  std::vector<double> kl;
  double nll_p = 0, nll_q = 0;
  for (const TokenDivergence& t : tokens) {
    kl.push_back(t.kl);
    s.mean += t.kl;
    s.same_top += t.same_top;
    nll_p += t.nll_p;
    nll_q += t.nll_q;
    s.max_delta = std::max(s.max_delta, t.max_delta);
  }
  const double n = double(tokens.size());
  std::sort(kl.begin(), kl.end());
  const auto rank = [&](double q) { return kl[static_cast<size_t>(std::ceil(q * n)) - 1]; };
  s.mean /= n;
  s.same_top /= n;
  s.median = rank(0.5);
  s.p99 = rank(0.99);
  s.p999 = rank(0.999);
  s.max = kl.back();
  s.ppl_p = std::exp(nll_p / n);
  s.ppl_ratio = std::exp((nll_q - nll_p) / n);
  return s;
}

}  // namespace varve::eval
