#pragma once
// Everything a Cache, its guards and its conversions share. Guards and conversions keep it alive.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/page_table.h"
#include "cache/pool.h"

namespace varve::cache {

/// One sequence's block table in one class: pages of the positions from first * page_tokens on, without a gap.
struct BlockTable {
  int first = 0;  ///< pages already released at the front (they left the window)
  std::vector<PageId> pages;
  uint32_t strip = 0;  ///< slot in the class's strip pool, when the class has strips
};

struct Sequence {
  int length = 0;    ///< settled tokens
  int reserved = 0;  ///< positions after `length` that reserve() promised
  std::vector<BlockTable> classes;
};

/// Slots wanted at once from several pools.
struct Demand {
  std::vector<std::pair<Pool*, size_t>> slots;
};

class CacheState {
 public:
  explicit CacheState(const Config& config);

  Result<SequenceId> start();
  Result<SequenceId> fork(SequenceId id);
  /// `what` begins the message of a failure.
  Result<SequenceId> start(const PrefixPages& prefix, const std::string& what);
  Result<SequenceId> fork(SequenceId id, int tokens);
  void finish(SequenceId id);
  Status reserve(SequenceId id, int tokens);
  Status settle(SequenceId id, int tokens);
  Status truncate(SequenceId id, int tokens);
  int revocable(SequenceId id, int keep) const;
  size_t shortfall(SequenceId id, int tokens) const;
  size_t fork_shortfall(SequenceId id) const;
  size_t shortfall() const { return missing_bytes(strip_demand(), headroom_); }

  uint64_t guard(std::span<const SequenceId> ids);
  void release_guard(uint64_t id);
  Status hold(size_t cls, PageId page);
  void release(size_t cls, PageId page);
  /// Takes the source reference and the destination slot; *from and *to say where.
  Status begin_conversion(size_t cls, PageId page, Tier to, PageRef* from_ref, PageRef* to_ref);
  /// Ends a conversion; true when dst became the page.
  bool end_conversion(PageId page, bool publish);

  Status check() const;

  const Sequence* find(SequenceId id) const;
  Pool* pool(size_t cls, Tier tier) const { return pools_[cls * kPoolsPerClass + static_cast<size_t>(tier)].get(); }
  Pool* strips(size_t cls) const { return pools_[cls * kPoolsPerClass + kTiers].get(); }
  const ClassConfig& cls(size_t c) const { return config_.classes[c]; }

  const Config& config() const { return config_; }
  const Budget& budget() const { return budget_; }
  size_t headroom() const { return headroom_; }
  const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }
  const PageTable& pages() const { return pages_; }

 private:
  static constexpr size_t kPoolsPerClass = kTiers + 1;  ///< the tiers, then the strips
  struct Held {
    Pool* pool;
    uint32_t slot;
  };

  Sequence* find(SequenceId id);
  PageId new_page(size_t cls, int start);
  /// The one way in which a page changes hands: its slot's reference follows, and the page goes with its last owner.
  void set_owners(PageId page, uint32_t requests, bool cached);
  void add_request(PageId page);
  void drop_request(PageId page);
  Status validate(const PrefixPages& prefix, const std::string& what) const;
  Demand strip_demand() const;
  Demand reserve_demand(const Sequence& sequence, int tokens) const;
  Demand fork_demand(const Sequence& parent) const;
  /// Bytes that growth for the demand would lack, keeping `headroom` free; 0: it fits.
  size_t missing_bytes(const Demand& demand, size_t headroom) const;
  /// Grows every pool for the demand, or none. `what` begins the message of a failure.
  Status make_room(const Demand& demand, size_t headroom, const std::string& what);
  std::string holders() const;

  const Config config_;
  Budget budget_;
  size_t headroom_ = 0;
  std::vector<std::unique_ptr<Pool>> pools_;  ///< [class][tier..., strips]; null where unused
  PageTable pages_;
  std::map<SequenceId, Sequence> sequences_;
  std::map<uint64_t, std::vector<Held>> guards_;
  SequenceId next_sequence_ = 1;
  uint64_t next_guard_ = 1;
};

}  // namespace varve::cache
