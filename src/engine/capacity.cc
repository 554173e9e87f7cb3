#include "engine/capacity.h"

#include <algorithm>

namespace varve::engine {

Result<uint64_t> capacity(const CapacityInput& input) {
  const uint64_t sequence = input.fixed_bytes + input.kv_bytes;
  if (sequence == 0) return invalid_argument("capacity: a sequence of 0 bytes");
  if (input.memory_bytes <= input.resident_bytes) return uint64_t{0};
  return (input.memory_bytes - input.resident_bytes) / sequence;
}

CapacityInput capacity_terms(const CachePlan& plan, const Profile& profile, uint64_t memory_bytes,
                             uint64_t weight_bytes, int64_t tokens) {
  CapacityInput out{.memory_bytes = memory_bytes, .resident_bytes = weight_bytes, .fixed_bytes = 0, .kv_bytes = 0};
  size_t headroom = 0;
  for (const ClassPlan& c : plan.classes) {
    out.fixed_bytes += c.strip.bytes;
    headroom = std::max({headroom, c.slot(cache::Tier::kStale1).bytes, c.slot(cache::Tier::kStale2).bytes});
  }
  out.resident_bytes += headroom;
  out.kv_bytes = plan.sequence_bytes(profile, tokens) - out.fixed_bytes;
  for (const ClassPlan& c : plan.classes) {
    if (c.uses(cache::Tier::kStale1) && tokens > profile.recent_tokens + profile.page_tokens) {
      out.kv_bytes += c.slot(cache::Tier::kRecent).bytes;
    }
  }
  return out;
}

Status check_budget(const CachePlan& plan, const Profile& profile, uint64_t budget_bytes, int context_tokens) {
  const auto needed = [&](int64_t tokens) {
    const CapacityInput t = capacity_terms(plan, profile, budget_bytes, 0, tokens);
    return t.resident_bytes + t.fixed_bytes + t.kv_bytes;
  };
  if (needed(1) <= budget_bytes) return {};
  return resource_exhausted("profile " + profile.name + ": the KV budget is " + std::to_string(budget_bytes) +
                            " bytes; the shortest session takes " + std::to_string(needed(1)) + ", one of " +
                            std::to_string(context_tokens) + " tokens " + std::to_string(needed(context_tokens)));
}

}  // namespace varve::engine
