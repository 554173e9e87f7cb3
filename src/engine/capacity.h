#pragma once
// How many sequences a memory holds: equation 14 of the Minima-KV paper,
//   C(L) = floor((M - W) / (D + K(L))).

#include <cstdint>

#include "engine/cache_plan.h"
#include "varve/status.h"

namespace varve::engine {

struct CapacityInput {
  uint64_t memory_bytes = 0;    ///< M: all the memory there is
  uint64_t resident_bytes = 0;  ///< W: weights and what all sequences share
  uint64_t fixed_bytes = 0;     ///< D: of one sequence, whatever its length
  uint64_t kv_bytes = 0;        ///< K(L): of one sequence of the length in question
};

/// Equation 14; 0 when the weights alone do not fit. kInvalidArgument when a sequence would take no bytes.
Result<uint64_t> capacity(const CapacityInput& input);

/// The terms of equation 14 that a plan gives. D: the exact strips. K(L): the pages, and one of each class that is
/// being demoted and so exists twice: without it, sessions that all stand at the same place would press each other.
/// W: `weight_bytes` and the room that the cache keeps free so that a page can always be converted (the largest stale
/// slot).
CapacityInput capacity_terms(const CachePlan& plan, const Profile& profile, uint64_t memory_bytes,
                             uint64_t weight_bytes, int64_t tokens);

/// kResourceExhausted when the shortest session does not fit `budget_bytes` of pages and strips; the message says what
/// that one and one of `context_tokens` would take.
Status check_budget(const CachePlan& plan, const Profile& profile, uint64_t budget_bytes, int context_tokens);

}  // namespace varve::engine
