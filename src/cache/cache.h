#pragma once
// Pages, pools, block tables and who owns them. CONTRACT.md beside this file is normative. The cache never looks at a
// page's bytes: formats, layers and models are unknown here; a slot is a number of bytes in a tier.
//
// Thread safety: none; the engine calls in from one thread between steps. Slot memory is stable while a reader or a
// conversion holds it.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cache {

enum class Tier : uint8_t { kRecent, kAnchor, kStale1, kStale2, kCount };
inline constexpr size_t kTiers = static_cast<size_t>(Tier::kCount);
const char* tier_name(Tier tier);

using SequenceId = uint64_t;  ///< never reused
using PageId = uint32_t;      ///< index of a logical page record; reused, so always used with a generation

/// Where a logical page's bytes are now. A retier replaces it atomically for every holder.
struct PageRef {
  Tier tier = Tier::kRecent;
  uint32_t slot = 0;
  uint32_t generation = 0;
  bool operator==(const PageRef&) const = default;
};

/// One attention class (full, sliding): its own pools and block tables.
struct ClassConfig {
  int page_tokens = 0;
  int window = 0;                         ///< 0: keep all; else pages wholly below position - window are released
  std::array<size_t, kTiers> slot_bytes{};  ///< 0: the tier is not used by this class
  size_t strip_bytes = 0;                 ///< exact strip of one sequence; 0: none
};

struct Config {
  std::vector<ClassConfig> classes;
  size_t budget_bytes = 0;  ///< of all slabs together; the sum over pools never exceeds it
  size_t slab_bytes = 4u << 20;  ///< pools grow by slabs of about this size (at least one slot)
  bool poison = false;      ///< tests: fill freed slots and strips with 0xA5
};

/// What a block table entry says to a reader of the table.
struct BlockEntry {
  PageId page;
  PageRef ref;
  int start;     ///< position of the first token
  int tokens;    ///< settled tokens in it
  bool sealed;   ///< full and settled: immutable, may be converted or shared
  bool shared;   ///< more than one sequence holds it
};

struct PoolStats {
  size_t slot_bytes, slots_total, slots_free, slots_live, slots_converting, slab_bytes;
};

class Cache;

/// Keeps the pages of a step readable: nothing it covers is freed or reused before it is destroyed.
class ReadGuard {
 public:
  ReadGuard() = default;
  ReadGuard(ReadGuard&&) noexcept;
  ReadGuard& operator=(ReadGuard&&) noexcept;
  ~ReadGuard();

 private:
  friend class Cache;
  Cache* cache_ = nullptr;
  std::vector<std::pair<uint32_t, PageRef>> held_;  ///< (class, ref)
};

/// A retier in flight: fill dst from src, then publish. Destroying it unpublished abandons it and leaves no trace.
class Conversion {
 public:
  Conversion() = default;
  Conversion(Conversion&&) noexcept;
  Conversion& operator=(Conversion&&) noexcept;
  ~Conversion();

  bool active() const { return cache_ != nullptr; }
  size_t cls() const { return cls_; }
  PageId page() const { return page_; }
  PageRef from() const { return from_; }
  PageRef to() const { return to_; }
  const uint8_t* src() const;
  uint8_t* dst() const;
  /// Makes dst the page for every holder and releases src (freed once its readers are gone). If the page has lost its
  /// last owner meanwhile, both slots are freed and false is returned.
  bool publish();

 private:
  friend class Cache;
  Cache* cache_ = nullptr;
  size_t cls_ = 0;
  PageId page_ = 0;
  PageRef from_, to_;
};

class Cache {
 public:
  static Result<std::unique_ptr<Cache>> create(const Config& config);
  ~Cache();

  /// A new, empty sequence (takes its strips). kResourceExhausted with the numbers when the budget has no room.
  Result<SequenceId> start();
  /// A new sequence with the same settled tokens: shares every sealed page, copies the unsealed one and the strips.
  Result<SequenceId> fork(SequenceId sequence);
  /// Drops every reference of the sequence. Idempotent: an unknown or finished id is ignored.
  void finish(SequenceId sequence);

  /// Append, first half: makes room for `tokens` more positions in every class, all or nothing.
  Status reserve(SequenceId sequence, int tokens);
  /// Append, second half: the reserved rows are written and settled; full pages seal; sliding pages leave the window.
  void settle(SequenceId sequence, int tokens);
  /// Forgets settled tokens from position `tokens` on. Only tokens of the unsealed page can be forgotten cheaply;
  /// kUnsupported when `tokens` lies inside a sealed page (the caller re-prefills from the page start).
  Status truncate(SequenceId sequence, int tokens);

  int length(SequenceId sequence) const;  ///< settled tokens
  /// The block table, ordered by position, reserved pages included (tokens = 0 for those not yet settled).
  std::vector<BlockEntry> blocks(SequenceId sequence, size_t cls) const;
  uint8_t* strip(SequenceId sequence, size_t cls);
  uint8_t* slot(size_t cls, const PageRef& ref);

  /// Reader references on every page of the sequences. Pages leave the cache only after the guard is gone.
  ReadGuard read(std::span<const SequenceId> sequences);

  /// Retier: takes a source reference and a destination slot. Errors: page not sealed, already converting, same tier,
  /// stale reference (kInvalidArgument), no room (kResourceExhausted).
  Result<Conversion> retier(size_t cls, PageId page, Tier to);

  PoolStats pool(size_t cls, Tier tier) const;
  size_t strip_bytes_live() const;
  size_t allocated_bytes() const;  ///< slabs of all pools and strips: what the budget limits
  size_t budget_bytes() const;
  std::vector<SequenceId> sequences() const;
  /// Tests and idle checks: free + live + converting = total per pool, counters equal list lengths, no slot twice.
  Status check() const;

 private:
  friend class ReadGuard;
  friend class Conversion;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Cache();
};

}  // namespace varve::cache
