#include "cache/lifecycle/refinements.h"

namespace varve::cache {

void Refinements::demoting(size_t cls, PageId page, Tier from, const uint8_t* slot, size_t bytes) {
  if (source_ == nullptr || kept_.contains(page) || lossy_.contains(page)) return;
  if (!source_->keep(cls, page, from, slot, bytes)) return;
  kept_.insert(page);
  ++kept_ever_;
}

FidelitySource::State Refinements::ask(SequenceId sequence, size_t cls, PageId page, int start) {
  if (source_ == nullptr) return FidelitySource::State::kNone;
  const FidelitySource::State state = source_->ask(sequence, cls, page, start);
  if (state == FidelitySource::State::kNone) kept_.erase(page);
  return state;
}

void Refinements::promoted(PageId page, bool lossy) {
  if (lossy) {
    lossy_.insert(page);
  } else {
    lossy_.erase(page);
  }
}

void Refinements::collect(const Cache& cache) {
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (cache.page(*it)) {
      ++it;
      continue;
    }
    source_->forget(*it);
    it = kept_.erase(it);
  }
  std::erase_if(lossy_, [&](PageId page) { return !cache.page(page); });
}

}  // namespace varve::cache
