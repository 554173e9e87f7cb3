#pragma once
// Where a promoted page gets back what its demotion dropped.

#include <cstddef>
#include <cstdint>

#include "cache/cache.h"

namespace varve::cache {

/// Finer bytes of stale pages: kept when the page was demoted, or made again. Called from the controller's thread, in
/// an order that depends on nothing but the calls to the controller.
class FidelitySource {
 public:
  enum class State : uint8_t {
    kReady,    ///< bytes() has them
    kPending,  ///< being read or made: ask again
    kNone,     ///< there are none and will be none
  };
  struct Bytes {
    const uint8_t* slot = nullptr;  ///< a whole slot in the layout of `tier`; null: there is none after all
    Tier tier = Tier::kRecent;
    const char* how = "";  ///< "restore" or "recompute"; a constant
  };

  virtual ~FidelitySource() = default;
  /// A demotion out of `tier` (Recent or Anchor) is about to be published and to release these bytes. True: they were
  /// kept, and the page is not offered again until it is forgotten or ask() says kNone.
  virtual bool keep(size_t cls, PageId page, Tier tier, const uint8_t* slot, size_t bytes) = 0;
  /// Begins a promotion of the page, or asks how it is going: at most once per advance in which the sequence settled,
  /// until the answer is kReady or kNone. start: position of the page's first token.
  virtual State ask(SequenceId sequence, size_t cls, PageId page, int start) = 0;
  /// After kReady; valid until done().
  virtual Bytes bytes(size_t cls, PageId page) = 0;
  /// The promotion that asked is published, abandoned or withdrawn: lets go of what bytes() gave, stops making it.
  /// What keep() kept stays. Once for each promotion that was answered kReady or kPending.
  virtual void done(size_t cls, PageId page) = 0;
  /// Memory is short, and no promotion is in flight: gives back what those that wait hold of the cache. They may be
  /// told kNone, and bytes() may be null, from now on.
  virtual void relieve() {}
  /// The page is gone: drops what was kept.
  virtual void forget(PageId page) = 0;
};

}  // namespace varve::cache
