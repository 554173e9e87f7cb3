#pragma once
// Physical bytes by tier, from the allocator.

#include <span>

#include "cache/cache.h"
#include "engine/cache_plan.h"
#include "varve/stats.h"

namespace varve::engine {

/// Counts every page of `sessions` once, however many of them hold it, and the pages that only the prefix cache holds.
/// dense_bytes prices the same tokens in f16, windows applied; what other sequences hold (recomputations) is physical
/// alone.
KvStats count_kv(const cache::Cache& cache, const CachePlan& plan, std::span<const cache::SequenceId> sessions,
                 size_t scratch_bytes);

}  // namespace varve::engine
