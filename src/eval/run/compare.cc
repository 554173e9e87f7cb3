#include "eval/run/compare.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/system.h"

namespace varve::eval {

std::vector<TokenDivergence> compare_rows(std::span<const float> p, std::span<const float> q, size_t vocabulary,
                                          std::span<const int32_t> next, int threads) {
  std::vector<TokenDivergence> out(next.size());
  const size_t workers = std::min(next.size(), static_cast<size_t>(threads > 0 ? threads : processor_count()));
  const auto work = [&](size_t first) {
    for (size_t i = first; i < next.size(); i += workers) {
      out[i] = compare_logits(p.subspan(i * vocabulary, vocabulary), q.subspan(i * vocabulary, vocabulary), next[i]);
    }
  };
  std::vector<std::thread> others;
  for (size_t w = 1; w < workers; ++w) others.emplace_back(work, w);
  if (workers > 0) work(0);
  for (std::thread& t : others) t.join();
  return out;
}

double log_probability(std::span<const float> logits, int32_t token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x) - max);
  return double(logits[static_cast<size_t>(token)]) - max - std::log(sum);
}

int32_t greedy(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace varve::eval
