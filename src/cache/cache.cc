#include "cache/cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/state.h"

namespace varve::cache {
namespace {

constexpr std::array<const char*, kTiers> kTierNames = {"recent", "anchor", "stale1", "stale2"};

/// A slab is at most this share of the budget, so that half-used slabs cannot starve another pool.
constexpr size_t kLeastSlabsPerBudget = 16;

Status validate(const Config& config) {
  if (config.classes.empty()) return invalid_argument("cache: no attention class");
  for (size_t c = 0; c < config.classes.size(); ++c) {
    const ClassConfig& cls = config.classes[c];
    const std::string who = "cache: class " + std::to_string(c);
    if (cls.page_tokens <= 0) {
      return invalid_argument(who + ": page_tokens is " + std::to_string(cls.page_tokens) + ", must be positive");
    }
    if (cls.window < 0 || cls.tile_tokens < 0) {
      return invalid_argument(who + ": window " + std::to_string(cls.window) + " or tile_tokens " +
                              std::to_string(cls.tile_tokens) + " is negative");
    }
    if (cls.tile_tokens != 0 && cls.page_tokens % cls.tile_tokens != 0) {
      return invalid_argument(who + ": page_tokens " + std::to_string(cls.page_tokens) +
                              " is not a multiple of tile_tokens " + std::to_string(cls.tile_tokens));
    }
    if (cls.slot_bytes[static_cast<size_t>(Tier::kRecent)] == 0) {
      return invalid_argument(who + ": recent slots have 0 bytes, every page is born there");
    }
    if (cls.sink_bytes > cls.strip_bytes) {
      return invalid_argument(who + ": the sinks have " + std::to_string(cls.sink_bytes) +
                              " bytes, the strip that contains them has " + std::to_string(cls.strip_bytes));
    }
    for (size_t t = 0; t < kTiers; ++t) {
      if (cls.slot_bytes[t] > config.budget_bytes) {
        return resource_exhausted(who + ": a " + kTierNames[t] + " slot has " + std::to_string(cls.slot_bytes[t]) +
                                  " bytes, the whole budget is " + std::to_string(config.budget_bytes));
      }
    }
    if (cls.strip_bytes > config.budget_bytes) {
      return resource_exhausted(who + ": a strip has " + std::to_string(cls.strip_bytes) +
                                " bytes, the whole budget is " + std::to_string(config.budget_bytes));
    }
  }
  return {};
}

}  // namespace

const char* tier_name(Tier tier) {
  const size_t i = static_cast<size_t>(tier);
  return i < kTiers ? kTierNames[i] : "unknown";
}

int first_needed_page(const ClassConfig& cls, int tokens) {
  return cls.window == 0 ? 0 : std::max(0, tokens - cls.window + 1) / cls.page_tokens;
}

CacheState::CacheState(const Config& config) : config_(config), budget_{config.budget_bytes, 0} {
  const size_t slab_bytes = std::min(config.slab_bytes, config.budget_bytes / kLeastSlabsPerBudget);
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const std::string name = "class " + std::to_string(c) + " ";
    for (size_t t = 0; t < kTiers; ++t) {
      const size_t bytes = cls(c).slot_bytes[t];
      pools_.push_back(bytes == 0
                           ? nullptr
                           : std::make_unique<Pool>(name + kTierNames[t], bytes, slab_bytes, &budget_, config_.poison));
    }
    // One slab per strip: sequences are few, and a finished one gives its memory back whole.
    pools_.push_back(cls(c).strip_bytes == 0
                         ? nullptr
                         : std::make_unique<Pool>(name + "strip", cls(c).strip_bytes, 0, &budget_, config_.poison));
    for (const Tier tier : {Tier::kStale1, Tier::kStale2}) {
      if (pool(c, tier) != nullptr) headroom_ = std::max(headroom_, pool(c, tier)->slot_bytes());
    }
  }
}

Result<std::unique_ptr<Cache>> Cache::create(const Config& config) {
  if (Status status = validate(config); !status.ok()) return status;
  auto state = std::make_shared<CacheState>(config);
  size_t least = state->headroom();
  for (size_t c = 0; c < config.classes.size(); ++c) {
    least += state->pool(c, Tier::kRecent)->slot_bytes();
    if (state->strips(c) != nullptr) least += state->strips(c)->slot_bytes();
  }
  if (least > config.budget_bytes) {
    return resource_exhausted("cache: one page and strip per class and room for a conversion take " +
                              std::to_string(least) + " bytes, the budget is " + std::to_string(config.budget_bytes));
  }
  return std::unique_ptr<Cache>(new Cache(std::move(state)));
}

Cache::Cache(std::shared_ptr<CacheState> state) : state_(std::move(state)) {}
Cache::~Cache() = default;

Result<SequenceId> Cache::start() { return state_->start(); }
Result<SequenceId> Cache::fork(SequenceId sequence) { return state_->fork(sequence); }
Result<SequenceId> Cache::start(const PrefixPages& prefix) { return state_->start(prefix, "start from a prefix"); }
Result<SequenceId> Cache::fork(SequenceId sequence, int tokens) { return state_->fork(sequence, tokens); }
size_t Cache::fork_shortfall(SequenceId sequence) const { return state_->fork_shortfall(sequence); }
size_t Cache::shortfall() const { return state_->shortfall(); }
void Cache::finish(SequenceId sequence) { state_->finish(sequence); }
Status Cache::reserve(SequenceId sequence, int tokens) { return state_->reserve(sequence, tokens); }
size_t Cache::shortfall(SequenceId sequence, int tokens) const { return state_->shortfall(sequence, tokens); }
Status Cache::settle(SequenceId sequence, int tokens) { return state_->settle(sequence, tokens); }
Status Cache::truncate(SequenceId sequence, int tokens) { return state_->truncate(sequence, tokens); }
int Cache::revocable(SequenceId sequence, int keep) const { return state_->revocable(sequence, keep); }

bool Cache::contains(SequenceId sequence) const { return std::as_const(*state_).find(sequence) != nullptr; }

int Cache::length(SequenceId id) const {
  const Sequence* sequence = std::as_const(*state_).find(id);
  return sequence == nullptr ? 0 : sequence->length;
}

std::vector<BlockEntry> Cache::blocks(SequenceId id, size_t cls) const {
  std::vector<BlockEntry> entries;
  const Sequence* sequence = std::as_const(*state_).find(id);
  if (sequence == nullptr || cls >= sequence->classes.size()) return entries;
  const BlockTable& table = sequence->classes[cls];
  entries.reserve(table.pages.size());
  for (const PageId page_id : table.pages) {
    const Page& page = *state_->pages().find(page_id);
    entries.push_back({.page = page_id,
                       .ref = page.ref,
                       .start = page.start,
                       .tokens = std::clamp(sequence->length - page.start, 0, state_->cls(cls).page_tokens),
                       .sealed = page.sealed,
                       .shared = page.requests > 1,
                       .cached = page.cached,
                       .converting = page.converting});
  }
  return entries;
}

PageId Cache::page_at(SequenceId id, size_t cls, int position) const {
  const Sequence* sequence = std::as_const(*state_).find(id);
  if (sequence == nullptr || cls >= sequence->classes.size() || position < 0) return 0;
  const BlockTable& table = sequence->classes[cls];
  const int index = position / state_->cls(cls).page_tokens - table.first;
  return index < 0 || static_cast<size_t>(index) >= table.pages.size() ? 0 : table.pages[static_cast<size_t>(index)];
}

uint8_t* Cache::strip(SequenceId id, size_t cls) {
  const Sequence* sequence = std::as_const(*state_).find(id);
  if (sequence == nullptr || cls >= sequence->classes.size() || state_->strips(cls) == nullptr) return nullptr;
  return state_->strips(cls)->data(sequence->classes[cls].strip);
}

uint8_t* Cache::slot(size_t cls, const PageRef& ref) {
  if (cls >= config().classes.size() || ref.tier >= Tier::kCount) return nullptr;
  Pool* pool = state_->pool(cls, ref.tier);
  return pool != nullptr && pool->valid(ref.slot, ref.generation) ? pool->data(ref.slot) : nullptr;
}

std::optional<PageInfo> Cache::page(PageId id) const {
  const Page* page = state_->pages().find(id);
  if (page == nullptr) return std::nullopt;
  PageInfo info{.cls = page->cls,
                .ref = page->ref,
                .start = page->start,
                .sealed = page->sealed,
                .converting = page->converting,
                .destination = page->destination,
                .requests = page->requests,
                .cached = page->cached,
                .holder = 0,
                .shortest_length = 0};
  for (const auto& [sequence_id, sequence] : state_->sequences()) {
    const BlockTable& table = sequence.classes[page->cls];
    const int index = page->start / state_->cls(page->cls).page_tokens - table.first;
    if (index < 0 || static_cast<size_t>(index) >= table.pages.size()) continue;
    if (table.pages[static_cast<size_t>(index)] != id) continue;
    info.shortest_length = info.holder == 0 ? sequence.length : std::min(info.shortest_length, sequence.length);
    if (info.holder == 0) info.holder = sequence_id;
  }
  return info;
}

ReadGuard Cache::read(std::span<const SequenceId> sequences) {
  ReadGuard guard;
  guard.id_ = state_->guard(sequences);
  guard.state_ = state_;
  return guard;
}

Status Cache::hold(size_t cls, PageId page) { return state_->hold(cls, page); }
void Cache::release(size_t cls, PageId page) { state_->release(cls, page); }

Result<Conversion> Cache::retier(size_t cls, PageId page, Tier to) {
  Conversion conversion;
  if (Status status = state_->begin_conversion(cls, page, to, &conversion.from_, &conversion.to_); !status.ok()) {
    return status;
  }
  conversion.state_ = state_;
  conversion.cls_ = cls;
  conversion.page_ = page;
  return conversion;
}

const Config& Cache::config() const { return state_->config(); }

PoolStats Cache::pool(size_t cls, Tier tier) const {
  const Pool* pool = cls < config().classes.size() && tier < Tier::kCount ? state_->pool(cls, tier) : nullptr;
  if (pool == nullptr) return {};
  return {.slot_bytes = pool->slot_bytes(),
          .slots_total = pool->total(),
          .slots_free = pool->free(),
          .slots_live = pool->live(),
          .slots_cached = pool->cached(),
          .slots_draining = pool->draining(),
          .slots_converting = pool->converting(),
          .slab_bytes = pool->allocated_bytes()};
}

uint32_t Cache::requests(PageId id) const {
  const Page* page = state_->pages().find(id);
  return page == nullptr ? 0 : page->requests;
}

size_t Cache::cached_pages() const {
  size_t count = 0;
  state_->pages().each([&](PageId, const Page& page) { count += page.cached; });
  return count;
}

size_t Cache::cached_bytes() const {
  size_t bytes = 0;
  for (size_t c = 0; c < config().classes.size(); ++c) {
    for (size_t t = 0; t < kTiers; ++t) {
      const Pool* pool = state_->pool(c, static_cast<Tier>(t));
      if (pool != nullptr) bytes += pool->cached() * pool->slot_bytes();
    }
  }
  return bytes;
}

size_t Cache::strip_bytes_live() const {
  size_t bytes = 0;
  for (size_t c = 0; c < config().classes.size(); ++c) {
    if (state_->strips(c) != nullptr) bytes += state_->strips(c)->allocated_bytes();
  }
  return bytes;
}

size_t Cache::allocated_bytes() const { return state_->budget().used; }
size_t Cache::budget_bytes() const { return state_->budget().limit; }
size_t Cache::headroom_bytes() const { return state_->headroom(); }

std::vector<SequenceId> Cache::sequences() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : state_->sequences()) ids.push_back(id);
  return ids;
}

Status Cache::check() const { return state_->check(); }

}  // namespace varve::cache
