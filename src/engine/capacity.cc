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
  return out;
}

}  // namespace varve::engine
