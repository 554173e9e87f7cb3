#pragma once
// What a run cost: bytes from the allocator, by tier, beside the dense cache's.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace varve {

struct TierStats {
  std::string tier;    ///< "recent", "anchor", "stale1", "stale2", "exact" (sinks and open tiles)
  std::string format;  ///< the tier's format; "mixed" where layers differ
  int64_t pages = 0;
  int64_t tokens = 0;  ///< settled tokens whose rows are read from here
  size_t bytes = 0;    ///< allocated
};

struct KvStats {
  size_t dense_bytes = 0;     ///< tokens x f16 bytes per token, windows applied
  size_t physical_bytes = 0;  ///< allocated: payload + metadata + scratch
  size_t payload_bytes = 0;   ///< codes and exact rows
  size_t metadata_bytes = 0;  ///< headers, scales, centres, padding, allocator slack
  size_t scratch_bytes = 0;   ///< codec and conversion buffers
  std::vector<TierStats> tiers;

  double ratio() const { return physical_bytes ? double(dense_bytes) / double(physical_bytes) : 0.0; }
};

struct EngineStats {
  KvStats kv;
  uint64_t steps = 0;
  uint64_t transitions = 0;                   ///< pages moved between tiers
  uint64_t converted_tokens = 0;
  std::map<std::string, uint64_t> fallbacks;  ///< reason -> count; empty when nothing was refused, truncated or degraded
  std::string kernel;                         ///< the kernel table in use
};

}  // namespace varve
