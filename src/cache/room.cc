// Room: what an operation needs from the pools, all or nothing, and the message when it does not fit.

#include <algorithm>
#include <limits>
#include <sstream>

#include "cache/state.h"

namespace varve::cache {
namespace {

size_t add_saturated(size_t a, size_t b) {
  return a > std::numeric_limits<size_t>::max() - b ? std::numeric_limits<size_t>::max() : a + b;
}

size_t growth_bytes(const Demand& demand) {
  size_t bytes = 0;
  for (const auto& [pool, slots] : demand.slots) bytes = add_saturated(bytes, pool->growth_bytes(slots));
  return bytes;
}

}  // namespace

size_t CacheState::missing_bytes(const Demand& demand, size_t headroom) const {
  const size_t growth = growth_bytes(demand);
  if (growth == 0) return 0;  // free slots serve it: the budget is not touched
  const size_t wanted = add_saturated(growth, headroom);
  return wanted <= budget_.left() ? 0 : wanted - budget_.left();
}

Status CacheState::make_room(const Demand& demand, size_t headroom, const std::string& what) {
  const size_t growth = growth_bytes(demand);
  if (missing_bytes(demand, headroom) != 0) {
    std::ostringstream message;
    message << what << " needs ";
    const char* separator = "";
    for (const auto& [pool, slots] : demand.slots) {
      if (slots == 0) continue;
      message << separator << slots << " " << pool->name() << " slots of " << pool->slot_bytes() << " bytes";
      separator = ", ";
    }
    message << " (" << growth << " bytes of new slabs";
    if (headroom != 0) message << " beside " << headroom << " kept for a conversion";
    message << "); " << holders();
    return resource_exhausted(message.str());
  }
  // Full slabs may use what nobody needs: not the headroom, and not what the pools after this one must have.
  const size_t spare = budget_.left() - growth;
  size_t slack = spare > headroom_ ? spare - headroom_ : 0;
  for (size_t i = 0; i < demand.slots.size(); ++i) {
    const auto& [pool, slots] = demand.slots[i];
    const size_t own = pool->growth_bytes(slots);
    if (own == 0) continue;
    const size_t used_before = budget_.used;
    if (Status status = pool->grow(slots, own + slack); !status.ok()) {
      for (size_t j = 0; j < i; ++j) demand.slots[j].first->give_back_empty();
      return status;
    }
    slack -= budget_.used - used_before - own;
  }
  return {};
}

std::string CacheState::holders() const {
  std::ostringstream out;
  out << budget_.used << " of " << budget_.limit << " budget bytes are allocated by " << sequences_.size()
      << " sequences with " << pages_.size() << " pages";
  for (const auto& pool : pools_) {
    if (pool == nullptr || pool->total() == 0) continue;
    out << "; " << pool->name() << ": " << pool->total() << " slots, " << pool->allocated_bytes() << " bytes, "
        << pool->live() << " live";
    if (pool->draining() != 0) out << " (" << pool->draining() << " kept only by readers or conversions)";
    if (pool->cached() != 0) out << ", " << pool->cached() << " cached";
    if (pool->converting() != 0) out << ", " << pool->converting() << " converting";
    if (pool->free() != 0) out << ", " << pool->free() << " free";
  }
  return out.str();
}

}  // namespace varve::cache
