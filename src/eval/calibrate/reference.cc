#include "eval/calibrate/reference.h"

#include <algorithm>
#include <cmath>

namespace varve::eval {
namespace {

/// exp(x) - 1 - x without the loss of subtracting almost equal numbers.
double exp_remainder(double x) {
  if (std::fabs(x) > 0.25) return std::expm1(x) - x;
  // Taylor; the next term is below 1e-12 of the first.
  return x * x *
         (1.0 / 2 +
          x * (1.0 / 6 +
               x * (1.0 / 24 +
                    x * (1.0 / 120 + x * (1.0 / 720 + x * (1.0 / 5040 + x * (1.0 / 40320 + x * (1.0 / 362880))))))));
}

int32_t argmax(std::span<const float> x) {
  return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

}  // namespace

DenseReference::DenseReference(std::span<const float> logits, size_t vocabulary) : vocabulary_(vocabulary) {
  for (size_t at = 0; at + vocabulary <= logits.size(); at += vocabulary) {
    const std::span<const float> row = logits.subspan(at, vocabulary);
    Row& out = rows_.emplace_back();
    out.top = argmax(row);
    const double max = row[static_cast<size_t>(out.top)];
    double sum = 0;
    for (const float x : row) sum += std::exp(double(x) - max);
    const double threshold = max + std::log(sum * kLeast);
    double kept = 0;
    for (size_t i = 0; i < vocabulary; ++i) {
      if (double(row[i]) < threshold) continue;
      out.tokens.push_back(static_cast<int32_t>(i));
      out.logits.push_back(row[i]);
      out.p.push_back(std::exp(double(row[i]) - max));
      kept += out.p.back();
    }
    for (double& p : out.p) p /= kept;
  }
}

ArmDivergence DenseReference::compare(std::span<const float> logits) const {
  // With d the arm's logit less dense's, and x = d - sum p d: KL = log sum p exp(x) = log1p(sum p (exp(x) - 1 - x)).
  ArmDivergence out;
  std::vector<double> d;
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    const std::span<const float> q = logits.subspan(r * vocabulary_, vocabulary_);
    d.resize(row.tokens.size());
    double mean = 0;
    for (size_t i = 0; i < d.size(); ++i) {
      d[i] = double(q[static_cast<size_t>(row.tokens[i])]) - double(row.logits[i]);
      mean += row.p[i] * d[i];
    }
    double sum = 0;
    for (size_t i = 0; i < d.size(); ++i) sum += row.p[i] * exp_remainder(d[i] - mean);
    out.kl += std::log1p(sum);
    out.same_top += argmax(q) == row.top;
  }
  const double n = double(std::max<size_t>(1, rows_.size()));
  out.kl /= n;
  out.same_top /= n;
  return out;
}

}  // namespace varve::eval
