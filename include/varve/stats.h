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
  size_t cached_bytes = 0;    ///< of the physical bytes: pages that only the prefix cache holds
  size_t dense_bytes = 0;     ///< tokens x f16 bytes per token, windows applied
  size_t physical_bytes = 0;  ///< allocated: payload + metadata + scratch
  size_t payload_bytes = 0;   ///< codes and exact rows
  size_t metadata_bytes = 0;  ///< headers, scales, centres, padding, allocator slack
  size_t scratch_bytes = 0;   ///< codec and conversion buffers
  std::vector<TierStats> tiers;

  double ratio() const { return physical_bytes ? double(dense_bytes) / double(physical_bytes) : 0.0; }
};

/// What the prefix cache did.
struct PrefixStats {
  uint64_t hits = 0, misses = 0;
  uint64_t hit_tokens = 0;
  uint64_t shortened = 0, lost_tokens = 0;  ///< hits cut because a sliding window was gone
  uint64_t collisions = 0;                  ///< equal keys, different tokens: refused
  uint64_t evicted = 0;                     ///< entries
  uint64_t entries = 0;                     ///< now
  size_t bytes = 0;                         ///< now: pages that only the cache holds, and copies of sinks
};

/// What the router of the profile did; all 0 without one. Sums over the layers without a window and their KV heads.
/// Tokens count once for each row that has them in its context.
struct RouterStats {
  uint64_t selections = 0;  ///< made
  uint64_t reused = 0;      ///< taken over from an earlier step (reroute_steps)
  uint64_t pages_scored = 0, pages_skipped = 0;
  uint64_t decode_tokens = 0, decode_attended = 0;    ///< of decode rows, those that attend to all pages included
  uint64_t prefill_tokens = 0, prefill_attended = 0;  ///< of prompt rows, likewise
  double last_step_share = 1;                         ///< attended / in context, of the last step

  static double share(uint64_t attended, uint64_t tokens) {
    return tokens == 0 ? 1.0 : double(attended) / double(tokens);
  }
  double decode_share() const { return share(decode_attended, decode_tokens); }
  double prefill_share() const { return share(prefill_attended, prefill_tokens); }
};

/// Low-rank blocks that were made: one per layer of a converted page.
struct LowRankStats {
  uint64_t blocks = 0;
  uint64_t tokens = 0;            ///< summed over blocks
  double seconds = 0;             ///< of one thread, in making them
  std::map<int, uint64_t> ranks;  ///< rank -> blocks
  double retained_energy = 0;     ///< summed over blocks; each 0 to 1
  uint64_t exact_rows = 0, exact_rows_of_runs = 0;
  uint64_t runs_left_out = 0;  ///< whole runs that did not fit a block's rows
  uint64_t rows_lost = 0;      ///< with NaN or infinity

  double mean(uint64_t sum) const { return blocks ? double(sum) / double(blocks) : 0.0; }
  double mean_retained_energy() const { return blocks ? retained_energy / double(blocks) : 0.0; }
  /// One layer, one thread.
  double tokens_per_s() const { return seconds > 0 ? double(tokens) / seconds : 0.0; }
};

struct EngineStats {
  KvStats kv;
  PrefixStats prefix;
  RouterStats router;
  uint64_t steps = 0;
  uint64_t transitions = 0;  ///< pages moved between tiers
  uint64_t converted_tokens = 0;
  double conversion_s = 0;                     ///< time spent in conversions, all between steps
  double worst_conversion_s = 0;               ///< of one step
  LowRankStats low_rank;
  std::map<std::string, uint64_t> promotions;  ///< how -> pages: "restore", "recompute", "lossy"
  uint64_t recomputed_tokens = 0;              ///< read again for promotions
  uint64_t scored_steps = 0;                   ///< sampled for attention scores, summed over sessions
  uint64_t tiles_requested = 0;               ///< tiles that decode rows attended to, all layers, KV heads and steps
  uint64_t tiles_read = 0;                    ///< of these, read from pages: what a batch shares is read once
  size_t refinement_bytes = 0;                 ///< kept for promotions outside the KV budget
  std::string refinement_place;                ///< "host", "disk" or empty
  std::map<std::string, uint64_t>
      fallbacks;       ///< reason -> count; empty when nothing was refused, truncated or degraded
  std::string kernel;  ///< the kernel table in use
  int own_weight_products = 0;  ///< weight matrices that long feeds multiply in fp32 (weight_gemm "auto")
  size_t compute_bytes = 0;     ///< activations and panels of weight products; not part of kv
};

}  // namespace varve
