#pragma once
// Physical bytes by tier, from the allocator.

#include "cache/cache.h"
#include "engine/cache_plan.h"
#include "varve/stats.h"

namespace varve::engine {

/// Counts every page once, however many sessions hold it. dense_bytes prices the same tokens in f16, windows applied.
KvStats count_kv(const cache::Cache& cache, const CachePlan& plan, size_t scratch_bytes);

}  // namespace varve::engine
