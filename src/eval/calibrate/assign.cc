#include "eval/calibrate/assign.h"

#include <algorithm>
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

/// From minima's on, coarser at each step.
constexpr std::pair<const char*, const char*> kUniformWidths[] = {
    {"4", "3"}, {"4", "2"}, {"3", "3"}, {"3", "2"}, {"2", "2"}};

int index_of(const std::vector<std::string>& codecs, const std::string& codec) {
  return static_cast<int>(std::find(codecs.begin(), codecs.end(), codec) - codecs.begin());
}

template <typename T>
T most_common(const std::vector<T>& values) {
  std::map<T, int> counts;
  for (const T& value : values) ++counts[value];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

/// What the arms of one layer and side saw.
struct Observed {
  double sensitivity = 0;  ///< KL by error, mean over codecs and passages
  double error = 0;        ///< of the coarsest measured codec; 0 when nothing was measured
  double passages = 0;
};

Observed observe(const std::vector<CodecCost>& costs) {
  Observed out;
  int codecs = 0;
  for (const CodecCost& c : costs) {
    if (!c.measured() || c.error <= 0) continue;
    double sum = 0;
    for (const double kl : c.kl_by_passage) sum += kl;
    out.passages = double(c.kl_by_passage.size());
    out.sensitivity += sum / out.passages / c.error;
    out.error = c.error;
    ++codecs;
  }
  if (codecs > 0) out.sensitivity /= codecs;
  return out;
}

}  // namespace

void fit_costs(std::span<LayerCosts> layers, double prior_passages) {
  for (const bool one_format : {false, true}) {
    for (const bool is_k : {true, false}) {
      double sum = 0;
      int count = 0;
      for (const LayerCosts& l : layers) {
        if (l.one_format != one_format) continue;
        const Observed own = observe(is_k ? l.k : l.v);
        sum += own.sensitivity * own.error;
        ++count;
      }
      for (LayerCosts& l : layers) {
        if (l.one_format != one_format) continue;
        std::vector<CodecCost>& costs = is_k ? l.k : l.v;
        Observed own = observe(costs);
        if (own.error > 0) {
          // Layers differ in how large their rows are, and a codec's error with them: it is costs that have an average.
          const double average = sum / count / own.error, passages = own.passages;
          own.sensitivity = (passages * own.sensitivity + prior_passages * average) / (passages + prior_passages);
        }
        (is_k ? l.k_sensitivity : l.v_sensitivity) = own.sensitivity;
        for (size_t i = 0; i < costs.size(); ++i) {
          costs[i].kl = own.sensitivity * costs[i].error;
          if (i > 0) costs[i].kl = std::max(costs[i].kl, costs[i - 1].kl);
        }
      }
    }
  }
}

Assignment uniform_assignment(size_t layers, int k, int v) {
  return {.k = std::vector<int>(layers, k), .v = std::vector<int>(layers, v)};
}

Assignment coarsest_assignment(size_t layers) {
  return uniform_assignment(layers, static_cast<int>(kCalibratedK.size()) - 1,
                            static_cast<int>(kCalibratedV.size()) - 1);
}

Profile assemble(const Profile& base, const PageShape& shape, std::span<const LayerCosts> layers,
                 const Assignment& assignment) {
  Profile p = base;
  p.page_tokens = shape.page_tokens;
  p.recent_tokens = shape.recent_tokens;
  p.layers.clear();
  std::vector<std::string> formats;
  for (size_t l = 0; l < layers.size(); ++l) {
    formats.push_back(pair_name(layers[l].k[static_cast<size_t>(assignment.k[l])].codec,
                                layers[l].v[static_cast<size_t>(assignment.v[l])].codec));
  }
  p.formats.stale1 = most_common(formats);
  for (size_t l = 0; l < layers.size(); ++l) {
    TierFormats own;
    if (formats[l] != p.formats.stale1) own.stale1 = formats[l];
    if (layers[l].one_format && formats[l] != p.formats.recent) own.recent = formats[l];
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
  const Assignment coarsest = coarsest_assignment(layers.size());
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
  return Solver(base, shape, layers, price, *physical, KnapsackFront(items));
}

std::optional<Solver::Solution> Solver::solution(const Assignment& assignment) const {
  Solution out{.profile = assemble(base_, shape_, layers_, assignment), .cost = 0, .physical_bytes = 0};
  const auto bytes = price_.physical_bytes(out.profile);
  if (!bytes.ok()) return std::nullopt;
  out.physical_bytes = *bytes;
  for (size_t l = 0; l < layers_.size(); ++l) {
    out.cost += layers_[l].k[static_cast<size_t>(assignment.k[l])].kl;
    out.cost += layers_[l].v[static_cast<size_t>(assignment.v[l])].kl;
  }
  return out;
}

std::optional<Solver::Solution> Solver::solution(const std::optional<KnapsackPoint>& point) const {
  if (!point) return std::nullopt;
  Assignment assignment;
  for (size_t l = 0; l < layers_.size(); ++l) {
    assignment.k.push_back(point->choice[2 * l]);
    assignment.v.push_back(point->choice[2 * l + 1]);
  }
  return solution(assignment);
}

std::optional<Solver::Solution> Solver::within_bytes(size_t physical_bytes) const {
  // Sums of differences leave out the page that is being converted, whose recent format may depend on the choice: what
  // they miss by is taken off until the engine's own count fits.
  int64_t target = static_cast<int64_t>(physical_bytes) - static_cast<int64_t>(base_bytes_);
  while (const auto found = solution(front_.within_bytes(target))) {
    if (found->physical_bytes <= physical_bytes) return found;
    target -= static_cast<int64_t>(found->physical_bytes - physical_bytes);
  }
  return std::nullopt;
}

std::optional<Solver::Solution> Solver::within_cost(double cost) const { return solution(front_.within_cost(cost)); }

std::optional<Solver::Solution> Solver::uniform_within_bytes(size_t physical_bytes) const {
  for (const auto& [k, v] : kUniformWidths) {
    const auto found =
        solution(uniform_assignment(layers_.size(), index_of(kCalibratedK, k), index_of(kCalibratedV, v)));
    if (found && found->physical_bytes <= physical_bytes) return found;
  }
  return std::nullopt;
}

}  // namespace varve::eval
