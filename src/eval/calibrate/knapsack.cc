#include "eval/calibrate/knapsack.h"

#include <algorithm>

namespace varve::eval {

KnapsackFront::KnapsackFront(std::span<const std::vector<KnapsackOption>> items) {
  std::vector<State> sums;
  for (const std::vector<KnapsackOption>& options : items) {
    sums.clear();
    for (size_t o = 0; o < options.size(); ++o) {
      const auto add = [&](int64_t bytes, double cost, uint32_t previous) {
        sums.push_back({bytes + options[o].bytes, cost + options[o].cost, previous, static_cast<int>(o)});
      };
      if (steps_.empty()) add(0, 0, 0);
      for (size_t s = 0; !steps_.empty() && s < steps_.back().size(); ++s) {
        add(steps_.back()[s].bytes, steps_.back()[s].cost, static_cast<uint32_t>(s));
      }
    }
    std::sort(sums.begin(), sums.end(), [](const State& a, const State& b) {
      if (a.bytes != b.bytes) return a.bytes < b.bytes;
      if (a.cost != b.cost) return a.cost < b.cost;
      return a.option != b.option ? a.option < b.option : a.previous < b.previous;
    });
    std::vector<State>& front = steps_.emplace_back();
    for (const State& s : sums) {
      if (front.empty() || s.cost < front.back().cost) front.push_back(s);
    }
    if (front.empty()) return;
  }
}

KnapsackPoint KnapsackFront::point(size_t state) const {
  KnapsackPoint out{.bytes = steps_.back()[state].bytes, .cost = steps_.back()[state].cost, .choice = {}};
  out.choice.resize(steps_.size());
  for (size_t item = steps_.size(); item-- > 0;) {
    out.choice[item] = steps_[item][state].option;
    state = steps_[item][state].previous;
  }
  return out;
}

std::optional<KnapsackPoint> KnapsackFront::within_bytes(int64_t bytes) const {
  if (empty()) return std::nullopt;
  const std::vector<State>& front = steps_.back();
  const auto above =
      std::upper_bound(front.begin(), front.end(), bytes, [](int64_t b, const State& s) { return b < s.bytes; });
  if (above == front.begin()) return std::nullopt;
  return point(static_cast<size_t>(above - front.begin()) - 1);
}

std::optional<KnapsackPoint> KnapsackFront::within_cost(double cost) const {
  if (empty()) return std::nullopt;
  const std::vector<State>& front = steps_.back();
  const auto enough = std::partition_point(front.begin(), front.end(), [&](const State& s) { return s.cost > cost; });
  if (enough == front.end()) return std::nullopt;
  return point(static_cast<size_t>(enough - front.begin()));
}

}  // namespace varve::eval
