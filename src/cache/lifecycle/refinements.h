#pragma once
// Which pages a fidelity source keeps finer bytes of, and which have lost theirs for good.

#include <set>

#include "cache/lifecycle/fidelity.h"

namespace varve::cache {

/// Internal to the controller. Every call works without a source; then nothing is kept.
class Refinements {
 public:
  explicit Refinements(FidelitySource* source) : source_(source) {}

  /// Before a demotion out of `from` is published. Bytes that were themselves rebuilt from codes are never kept, or a
  /// later restore would claim what it cannot give.
  void demoting(size_t cls, PageId page, Tier from, const uint8_t* slot, size_t bytes);
  FidelitySource::State ask(SequenceId sequence, size_t cls, PageId page, int start);
  FidelitySource::Bytes bytes(size_t cls, PageId page) { return source_->bytes(cls, page); }
  void done(size_t cls, PageId page) { source_->done(cls, page); }
  void relieve() {
    if (source_ != nullptr) source_->relieve();
  }
  /// lossy: the page's bytes come from its codes; else from the source.
  void promoted(PageId page, bool lossy);
  /// Forgets the pages that the cache no longer has.
  void collect(const Cache& cache);

  size_t kept_now() const { return kept_.size(); }
  uint64_t kept_ever() const { return kept_ever_; }

 private:
  FidelitySource* source_;
  std::set<PageId> kept_;   ///< the source has finer bytes
  std::set<PageId> lossy_;  ///< the page's present bytes, whatever their tier, come from codes
  uint64_t kept_ever_ = 0;
};

}  // namespace varve::cache
