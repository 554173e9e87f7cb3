#pragma once
// Finer bytes of demoted pages in a store: what `restore` means.

#include <map>

#include "base/memory.h"
#include "cache/lifecycle/fidelity.h"
#include "cache/store/page_store.h"

namespace varve::cache {

class StoredRefinements final : public FidelitySource {
 public:
  /// The store outlives the object; its keys are page ids and nobody else uses it.
  explicit StoredRefinements(PageStore* store) : store_(store) {}

  /// False when the store refuses: the page then has no refinement, which the store has counted.
  bool keep(size_t cls, PageId page, Tier tier, const uint8_t* slot, size_t bytes) override;
  /// Reads into a buffer at once: kReady, or kNone when there is no value or the read fails; then the value is dropped.
  State ask(SequenceId sequence, size_t cls, PageId page, int start) override;
  Bytes bytes(size_t cls, PageId page) override;
  void done(size_t cls, PageId page) override;
  void forget(PageId page) override;

  size_t pages() const { return kept_.size(); }
  size_t buffer_bytes() const { return buffer_bytes_; }  ///< of pages being promoted now
  uint64_t lost() const { return lost_; }                ///< kept pages whose value could not be read back
  const PageStore& store() const { return *store_; }

 private:
  struct Kept {
    Tier tier;
    size_t bytes;
  };
  struct Read {
    Tier tier;
    AlignedBuffer slot;
  };
  PageStore* store_;
  std::map<PageId, Kept> kept_;
  std::map<PageId, Read> reads_;
  size_t buffer_bytes_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace varve::cache
