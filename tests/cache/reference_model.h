#pragma once
// A tiny model of the cache, kept beside the real one: plain sets of holders instead of counts, one "slot instance" per
// lifetime of a slot. Every instance carries a stamp in its bytes, so reuse, overwriting or early release of anything
// held shows as a wrong byte.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/cache.h"

namespace varve::cache::testing {

class ReferenceModel {
 public:
  explicit ReferenceModel(const Config& config);

  // Every operation runs on the cache and on the model and returns what went wrong, or "".
  std::string start();
  std::string fork(size_t which);
  std::string finish(size_t which, bool again);
  std::string reserve(size_t which, int tokens);
  std::string settle(size_t which, int tokens);
  std::string truncate(size_t which, int tokens);
  std::string read(uint64_t subset);
  std::string drop_guard(size_t which);
  std::string retier(size_t which_page, Tier to);
  std::string publish(size_t which);
  std::string abandon(size_t which);
  std::string hold(size_t which_page);
  /// Holds every sealed page of a sequence that is not held yet, and perhaps finishes it.
  std::string seal(size_t which, bool then_finish);
  /// Evicts a held page; `other`: releases one that is not held, or gone.
  std::string release(size_t which, bool other);
  /// Starts a sequence from whatever sealed pages exist at each position: of sequences, or only cached. `spoil` changes
  /// the request so that it must be refused (0: not).
  std::string start_prefix(size_t pick, int tokens, uint32_t spoil);
  std::string fork_at(size_t which, int tokens);

  /// Compares everything observable.
  std::string compare();

  size_t refusals() const { return refusals_; }
  size_t published() const { return published_; }
  size_t orphans() const { return orphans_; }
  size_t drained() const { return drained_; }
  size_t prefix_starts() const { return prefix_starts_; }
  size_t revived() const { return revived_; }  ///< cached pages that got a sequence again
  size_t cached_moves() const { return cached_moves_; }

 private:
  struct Slot {  ///< one lifetime of one slot or strip
    size_t cls;
    std::optional<PageRef> ref;  ///< none: a strip
    uint8_t* data;
    size_t bytes;
    uint64_t stamp;
    int mapped = 0, readers = 0, source = 0, destination = 0;
  };
  using SlotPtr = std::shared_ptr<Slot>;
  struct Page {
    size_t cls;
    PageId id;
    int start;
    SlotPtr slot;
    std::set<SequenceId> holders;
    bool cached = false;
    bool converting = false;
    bool owned() const { return !holders.empty() || cached; }
  };
  using PagePtr = std::shared_ptr<Page>;
  struct Sequence {
    int length = 0, reserved = 0;
    std::vector<std::map<int, PagePtr>> pages;  ///< per class, by start
    std::vector<SlotPtr> strips;                ///< per class, null for none
  };
  struct Flight {
    Conversion conversion;
    PagePtr page;
    SlotPtr source, destination;
  };

  Sequence* pick(size_t which, SequenceId* id);
  SlotPtr adopt(size_t cls, std::optional<PageRef> ref, uint8_t* data, size_t bytes);
  PagePtr adopt_page(SequenceId id, size_t cls, const BlockEntry& block);
  void stamp(const SlotPtr& slot);
  bool stamped(const Slot& slot, uint64_t stamp) const;
  void release(const SlotPtr& slot);
  void drop_holder(const PagePtr& page, SequenceId id);
  void let_go(const PagePtr& page);  ///< after an owner is gone
  std::vector<PagePtr> every_page() const;
  Sequence take_strips(SequenceId id, const std::vector<std::vector<uint8_t>>& sinks, std::string* wrong);
  std::string adopt_prefix(SequenceId id, int tokens, const std::vector<std::vector<PagePtr>>& pages,
                           const std::vector<std::vector<uint8_t>>& sinks);
  void finish_model(SequenceId id);
  bool sealed(const Page& page) const;
  size_t slot_bytes(size_t cls, Tier tier) const;
  size_t used_bytes() const;
  /// Whether new slots of these bytes may fit beside what is used. Exact when every slab is one slot; else free slots
  /// of other slabs can refuse what fits, and free slots of the same pool can serve it without the headroom.
  bool fits(size_t bytes, size_t headroom) const {
    return bytes == 0 || used_bytes() + bytes + (exact_room_ ? headroom : 0) <= budget_;
  }

  const Config config_;
  const size_t budget_;
  const bool exact_room_;
  size_t headroom_ = 0;
  std::unique_ptr<Cache> cache_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<SequenceId> finished_;
  std::map<PageId, PagePtr> pages_;
  std::set<SlotPtr> slots_;
  std::vector<std::pair<size_t, PageRef>> freed_;
  std::vector<PageId> gone_;
  std::vector<std::pair<ReadGuard, std::vector<SlotPtr>>> guards_;
  std::vector<Flight> flights_;
  uint64_t next_stamp_ = 1;
  size_t refusals_ = 0, published_ = 0, orphans_ = 0, drained_ = 0, prefix_starts_ = 0, revived_ = 0, cached_moves_ = 0;
};

}  // namespace varve::cache::testing
