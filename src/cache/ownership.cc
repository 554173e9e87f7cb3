// Owners of pages, readers and conversions.

#include "cache/state.h"

namespace varve::cache {

void CacheState::set_owners(PageId id, uint32_t requests, bool cached) {
  Page* page = pages_.find(id);
  Pool* slots = pool(page->cls, page->ref.tier);
  const std::optional<Hold> before = page->mapping();
  page->requests = requests;
  page->cached = cached;
  const std::optional<Hold> after = page->mapping();
  if (before == after) return;
  if (after) slots->hold(page->ref.slot, *after);  // first, so that the slot is never without a reference
  if (before) slots->drop(page->ref.slot, *before);
  if (!after && !page->converting) pages_.remove(id);
}

void CacheState::add_request(PageId id) {
  const Page& page = *pages_.find(id);
  set_owners(id, page.requests + 1, page.cached);
}

void CacheState::drop_request(PageId id) {
  const Page& page = *pages_.find(id);
  set_owners(id, page.requests - 1, page.cached);
}

Status CacheState::hold(size_t c, PageId id) {
  const std::string what = "hold of page " + std::to_string(id) + " in class " + std::to_string(c) + ": ";
  const Page* page = pages_.find(id);
  if (page == nullptr || page->cls != c || !page->owned()) {
    return invalid_argument(what + "the id is stale or of another class");
  }
  if (!page->sealed) return invalid_argument(what + "the page at " + std::to_string(page->start) + " is not sealed");
  if (page->cached) return invalid_argument(what + "the prefix cache holds it already");
  set_owners(id, page->requests, true);
  return {};
}

void CacheState::release(size_t c, PageId id) {
  const Page* page = pages_.find(id);
  if (page == nullptr || page->cls != c || !page->cached) return;
  set_owners(id, page->requests, false);
}

uint64_t CacheState::guard(std::span<const SequenceId> ids) {
  std::vector<Held> held;
  for (const SequenceId id : ids) {
    const Sequence* sequence = find(id);
    if (sequence == nullptr) continue;
    for (size_t c = 0; c < config_.classes.size(); ++c) {
      for (const PageId page_id : sequence->classes[c].pages) {
        const PageRef& ref = pages_.find(page_id)->ref;
        held.push_back({pool(c, ref.tier), ref.slot});
      }
      if (strips(c) != nullptr) held.push_back({strips(c), sequence->classes[c].strip});
    }
  }
  for (const Held& h : held) h.pool->hold(h.slot, Hold::kReader);
  const uint64_t id = next_guard_++;
  guards_.emplace(id, std::move(held));
  return id;
}

void CacheState::release_guard(uint64_t id) {
  const auto it = guards_.find(id);
  if (it == guards_.end()) return;
  for (const Held& h : it->second) h.pool->drop(h.slot, Hold::kReader);
  guards_.erase(it);
}

Status CacheState::begin_conversion(size_t c, PageId id, Tier to, PageRef* from_ref, PageRef* to_ref) {
  const std::string what = "retier of page " + std::to_string(id) + " in class " + std::to_string(c) + ": ";
  if (c >= config_.classes.size() || to >= Tier::kCount) return invalid_argument(what + "no such class or tier");
  Page* page = pages_.find(id);
  if (page == nullptr || page->cls != c || !page->owned()) {
    return invalid_argument(what + "the id is stale or of another class");
  }
  if (!page->sealed) return invalid_argument(what + "the page is not sealed");
  if (page->converting) {
    return invalid_argument(what + "already converting to " + tier_name(page->destination.tier));
  }
  if (page->ref.tier == to) return invalid_argument(what + "already in tier " + tier_name(to));
  Pool* destination = pool(c, to);
  if (destination == nullptr) return invalid_argument(what + "the class does not use tier " + tier_name(to));
  if (Status status = make_room({{{destination, 1}}}, 0, what + "the destination"); !status.ok()) return status;

  const uint32_t slot = destination->take(Hold::kDestination);
  pool(c, page->ref.tier)->hold(page->ref.slot, Hold::kSource);
  page->converting = true;
  page->destination = {to, slot, destination->generation(slot)};
  *from_ref = page->ref;
  *to_ref = page->destination;
  return {};
}

bool CacheState::end_conversion(PageId id, bool publish) {
  Page* page = pages_.find(id);
  const PageRef from = page->ref, to = page->destination;
  Pool* source = pool(page->cls, from.tier);
  Pool* destination = pool(page->cls, to.tier);
  const bool owned = page->owned();
  page->converting = false;
  page->destination = {};
  if (publish && owned) {
    const Hold mapping = *page->mapping();
    destination->hold(to.slot, mapping);
    page->ref = to;
    source->drop(from.slot, mapping);
  }
  destination->drop(to.slot, Hold::kDestination);
  source->drop(from.slot, Hold::kSource);
  if (!owned) pages_.remove(id);
  return publish && owned;
}

ReadGuard::ReadGuard(ReadGuard&& other) noexcept : state_(std::move(other.state_)), id_(other.id_) {}

ReadGuard& ReadGuard::operator=(ReadGuard&& other) noexcept {
  if (this == &other) return *this;
  if (state_ != nullptr) state_->release_guard(id_);
  state_ = std::move(other.state_);
  id_ = other.id_;
  return *this;
}

ReadGuard::~ReadGuard() {
  if (state_ != nullptr) state_->release_guard(id_);
}

Conversion::Conversion(Conversion&& other) noexcept
    : state_(std::move(other.state_)), cls_(other.cls_), page_(other.page_), from_(other.from_), to_(other.to_) {}

Conversion& Conversion::operator=(Conversion&& other) noexcept {
  if (this == &other) return *this;
  if (state_ != nullptr) state_->end_conversion(page_, false);
  state_ = std::move(other.state_);
  cls_ = other.cls_;
  page_ = other.page_;
  from_ = other.from_;
  to_ = other.to_;
  return *this;
}

Conversion::~Conversion() {
  if (state_ != nullptr) state_->end_conversion(page_, false);
}

const uint8_t* Conversion::src() const {
  return state_ == nullptr ? nullptr : state_->pool(cls_, from_.tier)->data(from_.slot);
}

uint8_t* Conversion::dst() const { return state_ == nullptr ? nullptr : state_->pool(cls_, to_.tier)->data(to_.slot); }

bool Conversion::publish() {
  if (state_ == nullptr) return false;
  const bool published = state_->end_conversion(page_, true);
  state_.reset();
  return published;
}

}  // namespace varve::cache
