#include "eval/calibrate/assign.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "format/codec.h"

namespace varve::eval {
namespace {

/// The name that profiles use: "int8" for k8v8.
std::string pair_name(const std::string& k, const std::string& v) {
  const std::string name = "k" + k + "v" + v;
  const auto parsed = format::parse_format(name, format::Centre::kNone);
  return parsed.ok() ? format::format_name(*parsed) : name;
}

template <typename T>
T most_common(const std::vector<T>& values) {
  std::map<T, int> counts;
  for (const T& value : values) ++counts[value];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

void complete_costs(std::vector<CodecCost>& costs) {
  for (CodecCost& c : costs) {
    if (c.measured) continue;
    const CodecCost* nearest = nullptr;
    double nearest_distance = 0;
    for (const CodecCost& m : costs) {
      if (!m.measured || m.error <= 0) continue;
      const double distance = std::fabs(std::log(std::max(c.error, 1e-30) / m.error));
      if (nearest == nullptr || distance < nearest_distance) {
        nearest = &m;
        nearest_distance = distance;
      }
    }
    if (nearest != nullptr) c.kl = nearest->kl * c.error / nearest->error;
  }
  for (size_t i = 1; i < costs.size(); ++i) costs[i].kl = std::max(costs[i].kl, costs[i - 1].kl);
}

Profile assemble(const Profile& base, const PageShape& shape, std::span<const LayerCosts> layers,
                 const Assignment& assignment) {
  Profile p = base;
  p.page_tokens = shape.page_tokens;
  p.recent_tokens = shape.recent_tokens;
  p.layers.clear();
  std::vector<std::string> formats, centres;
  for (size_t l = 0; l < layers.size(); ++l) {
    formats.push_back(pair_name(layers[l].k[static_cast<size_t>(assignment.k[l])].codec,
                                layers[l].v[static_cast<size_t>(assignment.v[l])].codec));
    centres.push_back(layers[l].centre);
  }
  p.formats.stale1 = most_common(formats);
  p.formats.centre = most_common(centres);
  for (size_t l = 0; l < layers.size(); ++l) {
    TierFormats own;
    if (formats[l] != p.formats.stale1) own.stale1 = formats[l];
    if (centres[l] != p.formats.centre) own.centre = centres[l];
    if (own == TierFormats{}) continue;
    const int ordinal = static_cast<int>(l);
    if (!p.layers.empty() && p.layers.back().last == ordinal - 1 && p.layers.back().formats == own) {
      p.layers.back().last = ordinal;
    } else {
      p.layers.push_back({.first = ordinal, .last = ordinal, .formats = own});
    }
  }
  return p;
}

Result<Solver> Solver::create(const Profile& base, const PageShape& shape, std::span<const LayerCosts> layers,
                              const Price& price) {
  Assignment coarsest;
  for (const LayerCosts& l : layers) {
    coarsest.k.push_back(static_cast<int>(l.k.size()) - 1);
    coarsest.v.push_back(static_cast<int>(l.v.size()) - 1);
  }
  const Profile coarse = assemble(base, shape, layers, coarsest);
  const auto physical = price.physical_bytes(coarse);
  if (!physical.ok()) return physical.status();
  const auto pages = price.page_bytes(coarse);
  if (!pages.ok()) return pages.status();

  // Slots are sums over layers, so the bytes of an option do not depend on the other layers.
  std::vector<std::vector<KnapsackOption>> items;
  for (size_t l = 0; l < layers.size(); ++l) {
    for (const bool is_k : {true, false}) {
      const std::vector<CodecCost>& costs = is_k ? layers[l].k : layers[l].v;
      std::vector<KnapsackOption>& item = items.emplace_back();
      for (size_t i = 0; i < costs.size(); ++i) {
        Assignment changed = coarsest;
        (is_k ? changed.k : changed.v)[l] = static_cast<int>(i);
        const auto bytes = price.page_bytes(assemble(base, shape, layers, changed));
        if (!bytes.ok()) return bytes.status();
        item.push_back({.bytes = static_cast<int64_t>(*bytes) - static_cast<int64_t>(*pages), .cost = costs[i].kl});
      }
    }
  }
  return Solver(base, shape, layers, *physical, KnapsackFront(items));
}

std::optional<Solver::Solution> Solver::solution(const std::optional<KnapsackPoint>& point) const {
  if (!point) return std::nullopt;
  Assignment assignment;
  for (size_t l = 0; l < layers_.size(); ++l) {
    assignment.k.push_back(point->choice[2 * l]);
    assignment.v.push_back(point->choice[2 * l + 1]);
  }
  return Solution{.profile = assemble(base_, shape_, layers_, assignment),
                  .cost = point->cost,
                  .physical_bytes = base_bytes_ + static_cast<size_t>(point->bytes)};
}

std::optional<Solver::Solution> Solver::within_bytes(size_t physical_bytes) const {
  return solution(front_.within_bytes(static_cast<int64_t>(physical_bytes) - static_cast<int64_t>(base_bytes_)));
}

std::optional<Solver::Solution> Solver::within_cost(double cost) const { return solution(front_.within_cost(cost)); }

}  // namespace varve::eval
