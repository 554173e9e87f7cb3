#pragma once
// Physical slots of one size, in slabs that are allocated on demand and given back as soon as they are empty.

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/memory.h"
#include "varve/status.h"

namespace varve::cache {

/// Bytes shared by every pool of a cache.
struct Budget {
  size_t limit = 0;
  size_t used = 0;
  size_t left() const { return limit - used; }
};

/// Why a slot is kept. A slot is free when every count is zero. A page maps its slot once: as kMapping while a sequence
/// holds it, as kCached while only the prefix cache does.
enum class Hold : uint8_t { kMapping, kCached, kReader, kSource, kDestination, kCount };
inline constexpr size_t kHolds = static_cast<size_t>(Hold::kCount);

class Pool {
 public:
  /// slot_bytes: rounded up to a cache line. slab_bytes: most bytes of one slab, at least one slot is taken.
  Pool(std::string name, size_t slot_bytes, size_t slab_bytes, Budget* budget, bool poison);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const std::string& name() const { return name_; }
  size_t slot_bytes() const { return slot_bytes_; }

  /// New bytes needed to have `slots` free ones: 0 when they are there. Saturates instead of overflowing.
  size_t growth_bytes(size_t slots) const;
  /// Makes `slots` free ones with slabs of at most `limit` bytes together; limit >= growth_bytes(slots). On failure
  /// (the system refuses memory) nothing is kept.
  Status grow(size_t slots, size_t limit);

  /// Undoes a grow() whose slots were not taken.
  void give_back_empty();

  /// Takes the lowest free slot. There must be one.
  uint32_t take(Hold why);
  void hold(uint32_t slot, Hold why);
  /// The one release. The slot is freed, its generation grown, with its last reference. A release that was never taken
  /// changes nothing and is reported by check().
  void drop(uint32_t slot, Hold why);

  bool valid(uint32_t slot, uint32_t generation) const;
  uint32_t generation(uint32_t slot) const { return slots_[slot].generation; }
  uint32_t count(uint32_t slot, Hold why) const { return slots_[slot].holds[static_cast<size_t>(why)]; }
  uint8_t* data(uint32_t slot);

  size_t total() const { return total_; }
  size_t free() const { return free_.size(); }
  size_t converting() const { return converting_; }
  size_t draining() const { return draining_; }
  size_t cached() const { return cached_; }
  size_t live() const { return total_ - free_.size() - cached_ - converting_; }
  size_t allocated_bytes() const { return total_ * slot_bytes_; }

  /// Recounts slots and compares with `expected[slot][hold]` (missing entries are zeros).
  Status check(const std::vector<std::array<uint32_t, kHolds>>& expected) const;

 private:
  struct Slot {
    uint32_t generation = 0;
    std::array<uint32_t, kHolds> holds{};
    bool idle() const;
    bool converting() const { return holds[static_cast<size_t>(Hold::kDestination)] != 0; }
    bool cached() const { return holds[static_cast<size_t>(Hold::kCached)] != 0; }
    bool draining() const;
  };
  struct Slab {
    AlignedBuffer memory;
    uint32_t capacity = 0;  ///< slots; 0: the index is unused
    uint32_t used = 0;
  };

  Status add_slab(uint32_t capacity);
  void give_back(size_t slab);
  void change(uint32_t slot, Hold why, int delta);

  const std::string name_;
  const size_t slot_bytes_;
  uint32_t slab_slots_;  ///< slots of a full slab; slab i owns the indices [i * slab_slots_, (i + 1) * slab_slots_)
  Budget* const budget_;
  const bool poison_;
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;  ///< outlives its slab, so that generations keep growing
  std::set<uint32_t> free_;
  size_t total_ = 0;
  size_t converting_ = 0;
  size_t draining_ = 0;
  size_t cached_ = 0;
  size_t faults_ = 0;  ///< releases without a reference
};

}  // namespace varve::cache
