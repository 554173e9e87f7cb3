#pragma once
// Pages, pools, block tables and who owns them. CONTRACT.md beside this file is normative. The cache never looks at a
// page's bytes: formats, layers and models are unknown here; a slot is a number of bytes in a tier.
//
// Thread safety: none; the engine calls in from one thread between steps. Slot memory is stable while a reader or a
// conversion holds it, so other threads may use pointers taken before.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "varve/status.h"

namespace varve::cache {

enum class Tier : uint8_t { kRecent, kAnchor, kStale1, kStale2, kCount };
inline constexpr size_t kTiers = static_cast<size_t>(Tier::kCount);
const char* tier_name(Tier tier);

using SequenceId = uint64_t;  ///< never reused; 0 is no sequence
/// Names a logical page: its record's index (low half) and the record's generation (high half), so a reused record
/// never answers to an old id. 0 is no page.
using PageId = uint64_t;

/// Where a logical page's bytes are now. A retier replaces it atomically for every holder. The slot's generation grows
/// each time the slot is freed, so a stale reference is recognised (modulo 2^32 reuses of one slot).
struct PageRef {
  Tier tier = Tier::kRecent;
  uint32_t slot = 0;
  uint32_t generation = 0;
  bool operator==(const PageRef&) const = default;
};

/// One attention class (full, sliding): its own pools and block tables.
struct ClassConfig {
  int page_tokens = 0;
  /// 0: keep all; else the row at position p reads keys at positions > p - window, and pages that lie wholly below
  /// length - window are released when a step settles.
  int window = 0;
  std::array<size_t, kTiers> slot_bytes{};  ///< 0: the tier is not used by this class; recent must be used
  size_t strip_bytes = 0;                   ///< exact strip of one sequence; 0: none
  /// First bytes of a strip that hold the exact rows of the first positions of the sequence (attention sinks), all of
  /// them inside the first page. A sequence that starts from a prefix gets a copy; <= strip_bytes.
  size_t sink_bytes = 0;
  /// Rows that one strip tile holds before they are coded into the slot; 0: truncate() may stop anywhere in the
  /// unsealed page, else only inside the open tile or at a tile boundary, because the rows of older tiles are no longer
  /// exact.
  int tile_tokens = 0;
};

/// The first page that a sequence of `tokens` tokens needs for its next row, which reads keys at positions from
/// tokens - window + 1 on.
int first_needed_page(const ClassConfig& cls, int tokens);

struct Config {
  std::vector<ClassConfig> classes;
  size_t budget_bytes = 0;       ///< of all slabs together; the sum over pools never exceeds it
  size_t slab_bytes = 4u << 20;  ///< pools grow by slabs of at most about this size (at least one slot)
  bool poison = false;           ///< tests: fill new and freed slots and strips with kPoison
};
inline constexpr uint8_t kPoison = 0xA5;

/// What a block table entry says to a reader of the table.
struct BlockEntry {
  PageId page;
  PageRef ref;
  int start;        ///< position of the first token
  int tokens;       ///< settled tokens in it
  bool sealed;      ///< full and settled: immutable, may be converted or shared
  bool shared;      ///< more than one sequence holds it
  bool cached;      ///< the prefix cache holds it too
  bool converting;  ///< a retier is in flight
};

/// One logical page as the lifecycle sees it.
struct PageInfo {
  size_t cls;
  PageRef ref;
  int start;  ///< position of the first token
  bool sealed;
  bool converting;
  PageRef destination;  ///< of the conversion in flight, while converting
  uint32_t requests;    ///< sequences that hold it
  bool cached;          ///< the prefix cache holds it, see Cache::hold()
  SequenceId holder;    ///< the lowest id among the sequences; 0: only the cache or a conversion keeps the page
  int shortest_length;  ///< settled tokens of the shortest of them: the page's age is counted from there
};

/// Every slot is in exactly one state: slots_free + slots_live + slots_cached + slots_converting = slots_total.
struct PoolStats {
  size_t slot_bytes;  ///< allocated per slot, padding included
  size_t slots_total;
  size_t slots_free;
  size_t slots_live;        ///< mapped by a page of a sequence, or kept by readers or as a conversion's source
  size_t slots_cached;      ///< mapped by a page that no sequence holds, only the prefix cache
  size_t slots_draining;    ///< of the live ones, those no page maps any more
  size_t slots_converting;  ///< destinations of conversions not yet published
  size_t slab_bytes;        ///< allocated: slots_total * slot_bytes
};

/// What a sequence can start from instead of nothing: sealed pages, referenced in place in whatever tier they are, and
/// the bytes of its sinks. A page serves only at the position it was written for: its keys are rotated, and its codes
/// cannot be turned to another position exactly. So there is no context shift, by construction.
struct PrefixPages {
  int tokens = 0;  ///< a multiple of every class's page_tokens
  /// Per class, ascending and without a gap up to `tokens`: all pages from position 0; in a class with a window those
  /// that cover [tokens - window + 1, tokens), the keys that the row at `tokens` reads.
  std::vector<std::vector<PageId>> pages;
  std::vector<std::span<const uint8_t>> sinks;  ///< per class, sink_bytes each; copied. Not read when tokens is 0
};

class Cache;
class CacheState;

/// Keeps the pages and strips of a step in place: nothing it covers is freed or reused before it is destroyed. May
/// outlive its Cache (the memory then goes with the last guard).
class ReadGuard {
 public:
  ReadGuard() = default;
  ReadGuard(ReadGuard&&) noexcept;
  ReadGuard& operator=(ReadGuard&&) noexcept;
  ~ReadGuard();

 private:
  friend class Cache;
  std::shared_ptr<CacheState> state_;
  uint64_t id_ = 0;
};

/// A retier in flight: fill dst from src, then publish. Destroying it unpublished abandons it and leaves no trace.
class Conversion {
 public:
  Conversion() = default;
  Conversion(Conversion&&) noexcept;
  Conversion& operator=(Conversion&&) noexcept;
  ~Conversion();

  bool active() const { return state_ != nullptr; }
  size_t cls() const { return cls_; }
  PageId page() const { return page_; }
  PageRef from() const { return from_; }
  PageRef to() const { return to_; }
  const uint8_t* src() const;  ///< the source slot; null when not active
  uint8_t* dst() const;        ///< the destination slot; null when not active
  /// Makes dst the page for every holder and releases src (freed once its readers are gone). If the page has lost its
  /// last owner meanwhile, both slots are freed and false is returned. The conversion is inactive afterwards.
  bool publish();

 private:
  friend class Cache;
  std::shared_ptr<CacheState> state_;
  size_t cls_ = 0;
  PageId page_ = 0;
  PageRef from_, to_;
};

/// The KV cache of one engine.
class Cache {
 public:
  /// kInvalidArgument for a contradictory configuration; kResourceExhausted when the budget cannot hold one page per
  /// class, one strip per class and the conversion headroom.
  static Result<std::unique_ptr<Cache>> create(const Config& config);
  ~Cache();

  /// A new, empty sequence (takes its strips). kResourceExhausted with the numbers when the budget has no room.
  Result<SequenceId> start();
  /// A new sequence with the same settled tokens: shares every sealed page, copies the unsealed one and the strips.
  /// No step may be writing the sequence. kResourceExhausted leaves everything as it was.
  Result<SequenceId> fork(SequenceId sequence);
  /// A new sequence of `prefix.tokens` settled tokens that references the pages; nothing is copied but the sinks, the
  /// rest of its strips holds no meaningful bytes. Changes nothing on failure: kInvalidArgument (length, number of
  /// pages or sinks, a page that is gone, of another class or not sealed), kUnsupported (a page that was written for
  /// another position), kResourceExhausted (no room for the strips).
  Result<SequenceId> start(const PrefixPages& prefix);
  /// The same for the first `tokens` settled tokens of a sequence. kInvalidArgument when `tokens` is beyond its length
  /// or not a multiple of every class's page_tokens, kUnsupported when a class with a window has released what the row
  /// at `tokens` reads.
  Result<SequenceId> fork(SequenceId sequence, int tokens);
  /// Bytes the budget lacks for the strips of a new sequence; 0 when start() would succeed.
  size_t shortfall() const;
  /// Bytes the budget lacks for fork(sequence); 0 when it would succeed.
  size_t fork_shortfall(SequenceId sequence) const;
  /// Drops every reference of the sequence. Idempotent: an unknown or finished id is ignored.
  void finish(SequenceId sequence);

  /// Append, first half: makes room for `tokens` positions after the settled ones in every class, all or nothing.
  /// Not cumulative: a second call before settle() asks for max(first, second). kResourceExhausted says what was asked,
  /// who holds what and the budget, and changes nothing.
  Status reserve(SequenceId sequence, int tokens);
  /// Bytes the budget lacks for reserve(sequence, tokens); 0 when it would succeed.
  size_t shortfall(SequenceId sequence, int tokens) const;
  /// Append, second half: the first `tokens` reserved rows are written and settled; full pages seal; sliding pages
  /// leave the window. kInvalidArgument when more than reserved.
  Status settle(SequenceId sequence, int tokens);
  /// Forgets settled tokens from position `tokens` on, and any reservation: truncate(s, length(s)) cancels a reserve().
  /// Whole pages and tokens of the unsealed page can be forgotten. kUnsupported when `tokens` lies inside a sealed page
  /// (the caller truncates to the page's start and re-prefills), below the open tile of a class with strips, or so far
  /// back that pages of its window are already released.
  Status truncate(SequenceId sequence, int tokens);

  /// The most rows that can be reserved, settled in one go and, all but the first `keep`, forgotten again by truncate().
  /// In a class with strips they end at most where the open tile does, so that none of them is read coded by another
  /// that would have read it exact, or the other way round. At least `keep`; 0 for an unknown id.
  int revocable(SequenceId sequence, int keep) const;

  bool contains(SequenceId sequence) const;  ///< started and not finished
  int length(SequenceId sequence) const;     ///< settled tokens; 0 for an unknown id
  /// The block table, ordered by position, reserved pages included (tokens = 0 for those not yet settled).
  std::vector<BlockEntry> blocks(SequenceId sequence, size_t cls) const;
  /// The page of the sequence that covers a position; 0 when there is none (unknown id, not reserved, left the window).
  PageId page_at(SequenceId sequence, size_t cls, int position) const;
  uint8_t* strip(SequenceId sequence, size_t cls);  ///< null when the class has none or the id is unknown
  uint8_t* slot(size_t cls, const PageRef& ref);    ///< null when the reference is stale
  std::optional<PageInfo> page(PageId page) const;  ///< nothing when the page is gone

  /// Reader references on every page and strip of the sequences (unknown ids are skipped). They leave the cache only
  /// after the guard is gone.
  ReadGuard read(std::span<const SequenceId> sequences);

  /// The prefix cache's reference on a sealed page: it lives on when its last sequence lets go. There is at most one.
  /// kInvalidArgument: stale id or other class, not sealed, held already (the second caller would share a reference
  /// that only one of them may drop).
  Status hold(size_t cls, PageId page);
  /// Drops that reference. Idempotent: a page that is gone, of another class or not held is ignored.
  void release(size_t cls, PageId page);

  /// Retier: takes a source reference and a destination slot. A page that only the prefix cache holds can move too.
  /// Errors: page not sealed, already converting, same tier, tier not used by the class, stale id (kInvalidArgument),
  /// no room (kResourceExhausted).
  Result<Conversion> retier(size_t cls, PageId page, Tier to);

  const Config& config() const;
  PoolStats pool(size_t cls, Tier tier) const;
  uint32_t requests(PageId page) const;  ///< sequences that hold the page; 0 for an unknown id. Cheaper than page()
  size_t cached_pages() const;           ///< pages that the prefix cache holds
  size_t cached_bytes() const;           ///< of the slots that only the prefix cache keeps
  size_t strip_bytes_live() const;
  size_t allocated_bytes() const;  ///< slabs of all pools and strips: what the budget limits
  size_t budget_bytes() const;
  /// Bytes that start, fork and reserve leave free so that a demotion can always get its destination slot: the largest
  /// stale slot of any class, 0 when no class has a stale tier.
  size_t headroom_bytes() const;
  std::vector<SequenceId> sequences() const;  ///< ascending
  /// Tests and idle checks: recounts every reference from the tables, guards and conversions. kInternal names the first
  /// contradiction.
  Status check() const;

 private:
  explicit Cache(std::shared_ptr<CacheState> state);
  std::shared_ptr<CacheState> state_;
};

}  // namespace varve::cache
