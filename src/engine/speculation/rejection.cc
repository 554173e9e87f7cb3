#include "engine/speculation/rejection.h"

#include <algorithm>
#include <vector>

namespace varve::engine {
namespace {

using model::TokenProbability;

double probability(std::span<const TokenProbability> p, int32_t token) {
  const auto it = std::lower_bound(p.begin(), p.end(), token,
                                   [](const TokenProbability& entry, int32_t t) { return entry.token < t; });
  return it != p.end() && it->token == token ? double(it->probability) : 0.0;
}

/// max(p - q, 0), not normalised.
std::vector<TokenProbability> excess(std::span<const TokenProbability> p, std::span<const TokenProbability> q) {
  std::vector<TokenProbability> out;
  auto at = q.begin();
  for (const TokenProbability& entry : p) {
    while (at != q.end() && at->token < entry.token) ++at;
    const float taken = at != q.end() && at->token == entry.token ? at->probability : 0.0f;
    if (entry.probability > taken) out.push_back({entry.token, entry.probability - taken});
  }
  return out;
}

}  // namespace

int32_t draw(std::span<const TokenProbability> p, double u) {
  double sum = 0;
  for (const TokenProbability& entry : p) sum += double(entry.probability);
  double left = u * sum;
  int32_t last = p.front().token;  // rounding may leave a rest behind the last token that can occur
  for (const TokenProbability& entry : p) {
    if (entry.probability <= 0) continue;
    last = entry.token;
    left -= double(entry.probability);
    if (left < 0) break;
  }
  return last;
}

Verdict judge(std::span<const TokenProbability> p, std::span<const TokenProbability> q, int32_t draft, double u_accept,
              double u_draw) {
  if (u_accept * probability(q, draft) < probability(p, draft)) return {true, draft};
  const std::vector<TokenProbability> rest = excess(p, q);
  // p and q that differ by rounding alone can reject a token and leave nothing in its place.
  return {false, draw(rest.empty() ? p : std::span<const TokenProbability>(rest), u_draw)};
}

}  // namespace varve::engine
