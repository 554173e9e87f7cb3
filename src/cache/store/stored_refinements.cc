#include "cache/store/stored_refinements.h"

#include <utility>

namespace varve::cache {

bool StoredRefinements::keep(size_t, PageId page, Tier tier, const uint8_t* slot, size_t bytes) {
  kept_.erase(page);
  if (!store_->put(page, {slot, bytes}).ok()) return false;
  kept_[page] = {tier, bytes};
  return true;
}

FidelitySource::State StoredRefinements::ask(SequenceId, size_t cls, PageId page, int) {
  const auto it = kept_.find(page);
  if (it == kept_.end()) return State::kNone;
  done(cls, page);
  AlignedBuffer buffer(it->second.bytes);
  if (buffer.data() == nullptr || !store_->get(page, {buffer.data(), buffer.size()}).ok()) {
    ++lost_;
    store_->erase(page);
    kept_.erase(it);
    return State::kNone;
  }
  buffer_bytes_ += buffer.size();
  reads_.insert_or_assign(page, Read{it->second.tier, std::move(buffer)});
  return State::kReady;
}

FidelitySource::Bytes StoredRefinements::bytes(size_t, PageId page) {
  const auto it = reads_.find(page);
  if (it == reads_.end()) return {};
  return {it->second.slot.data(), it->second.tier, "restore"};
}

void StoredRefinements::done(size_t, PageId page) {
  const auto it = reads_.find(page);
  if (it == reads_.end()) return;
  buffer_bytes_ -= it->second.slot.size();
  reads_.erase(it);
}

void StoredRefinements::forget(PageId page) {
  if (kept_.erase(page) != 0) store_->erase(page);
}

}  // namespace varve::cache
