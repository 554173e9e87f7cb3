#include "engine/kv_stats.h"

#include <algorithm>
#include <set>

namespace varve::engine {
namespace {

using cache::Tier;

/// Tokens of a page that a window still reads, for a sequence of `length`.
int64_t tokens_in_window(const cache::BlockEntry& b, int length, int window) {
  const int first = window > 0 ? std::max(0, length - window) : 0;
  return std::max(0, b.start + b.tokens - std::max(first, b.start));
}

}  // namespace

KvStats count_kv(const cache::Cache& cache, const CachePlan& plan, std::span<const cache::SequenceId> sessions,
                 size_t scratch_bytes) {
  KvStats out;
  out.scratch_bytes = scratch_bytes;
  TierStats exact{.tier = "exact", .format = "f16"};
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    const ClassPlan& cls = plan.classes[c];
    std::array<TierStats, cache::kTiers> tiers;
    std::set<cache::PageId> seen;
    for (const cache::SequenceId sequence : sessions) {
      const int length = cache.length(sequence);
      for (const cache::BlockEntry& b : cache.blocks(sequence, c)) {
        if (!seen.insert(b.page).second) continue;
        const int64_t tokens = tokens_in_window(b, length, cls.window);
        TierStats& t = tiers[static_cast<size_t>(b.ref.tier)];
        t.pages += 1;
        t.tokens += tokens;
        out.dense_bytes += static_cast<size_t>(tokens) * cls.dense_bytes_per_token;
      }
      // Rows of the strip are read instead of page rows: sinks of page 0, and the open tile.
      if (cls.strip.bytes != 0) {
        const int open = length % format::kTileTokens;
        const int sinks = length == open ? 0 : std::min(length, cls.strip.sink_tokens);
        exact.pages += 1;
        exact.tokens += open + sinks;
        tiers[static_cast<size_t>(Tier::kRecent)].tokens -= open;
      }
    }
    for (size_t t = 0; t < cache::kTiers; ++t) {
      const cache::PoolStats pool = cache.pool(c, static_cast<Tier>(t));
      if (pool.slab_bytes == 0) continue;
      const size_t cached_tokens = pool.slots_cached * static_cast<size_t>(cache.config().classes[c].page_tokens);
      tiers[t].pages += static_cast<int64_t>(pool.slots_cached);
      tiers[t].tokens += static_cast<int64_t>(cached_tokens);
      out.dense_bytes += cached_tokens * cls.dense_bytes_per_token;
      out.cached_bytes += pool.slots_cached * pool.slot_bytes;
      tiers[t].tier = cache::tier_name(static_cast<Tier>(t));
      tiers[t].format = cls.format_names[t];
      tiers[t].bytes = pool.slab_bytes;
      out.physical_bytes += pool.slab_bytes;
      out.payload_bytes += static_cast<size_t>(tiers[t].pages) * cls.slots[t].payload_bytes;
      const auto same = std::find_if(out.tiers.begin(), out.tiers.end(), [&](const TierStats& o) {
        return o.tier == tiers[t].tier && o.format == tiers[t].format;
      });
      if (same == out.tiers.end()) {
        out.tiers.push_back(tiers[t]);
      } else {
        same->pages += tiers[t].pages;
        same->tokens += tiers[t].tokens;
        same->bytes += tiers[t].bytes;
      }
    }
  }
  exact.bytes = cache.allocated_bytes() - out.physical_bytes;  // what is not in a pool is in strips
  if (exact.bytes != 0) out.tiers.push_back(exact);
  out.physical_bytes += exact.bytes;
  out.payload_bytes += exact.bytes;
  out.metadata_bytes = out.physical_bytes - out.payload_bytes;
  out.physical_bytes += scratch_bytes;
  return out;
}

}  // namespace varve::engine
