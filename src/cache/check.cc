// The invariants of CONTRACT.md, recounted from the tables.

#include <array>
#include <map>

#include "cache/state.h"

namespace varve::cache {

Status CacheState::check() const {
  std::map<const Pool*, std::vector<std::array<uint32_t, kHolds>>> found;
  const auto count = [&](const Pool* pool, uint32_t slot, Hold why) {
    auto& slots = found[pool];
    if (slot >= slots.size()) slots.resize(slot + 1);
    ++slots[slot][static_cast<size_t>(why)];
  };

  std::map<PageId, uint32_t> requests;
  for (const auto& [id, sequence] : sequences_) {
    const std::string who = "sequence " + std::to_string(id);
    for (size_t c = 0; c < config_.classes.size(); ++c) {
      const ClassConfig& config = cls(c);
      const BlockTable& table = sequence.classes[c];
      const int64_t end = (table.first + static_cast<int64_t>(table.pages.size())) * config.page_tokens;
      if (end < int64_t{sequence.length} + sequence.reserved)
        return internal_error(who + " has fewer pages than tokens");
      for (size_t i = 0; i < table.pages.size(); ++i) {
        const Page* page = pages_.find(table.pages[i]);
        if (page == nullptr) return internal_error(who + " names a page that is gone");
        const int start = (table.first + static_cast<int>(i)) * config.page_tokens;
        if (page->cls != c || page->start != start) return internal_error(who + " has a page out of place");
        if (page->sealed != (start + config.page_tokens <= sequence.length)) {
          return internal_error(who + ": the page at " + std::to_string(start) + " is sealed too early or too late");
        }
        ++requests[table.pages[i]];
      }
      if (strips(c) != nullptr) count(strips(c), table.strip, Hold::kMapping);
    }
  }

  Status status;
  size_t conversions = 0;
  pages_.each([&](PageId id, const Page& page) {
    if (!status.ok()) return;
    const std::string who = "page " + std::to_string(id);
    const auto it = requests.find(id);
    const uint32_t seen = it == requests.end() ? 0 : it->second;
    if (page.requests != seen) {
      status =
          internal_error(who + " counts " + std::to_string(page.requests) + " requests, found " + std::to_string(seen));
    } else if (!page.owned() && !page.converting) {
      status = internal_error(who + " has no owner");
    } else if ((page.requests > 1 || page.cached) && !page.sealed) {
      status = internal_error(who + " is shared before it is sealed");
    } else if (!pool(page.cls, page.ref.tier)->valid(page.ref.slot, page.ref.generation)) {
      status = internal_error(who + " refers to a slot that was freed");
    }
    if (page.mapping()) count(pool(page.cls, page.ref.tier), page.ref.slot, *page.mapping());
    if (page.converting) {
      ++conversions;
      count(pool(page.cls, page.ref.tier), page.ref.slot, Hold::kSource);
      count(pool(page.cls, page.destination.tier), page.destination.slot, Hold::kDestination);
    }
  });
  if (!status.ok()) return status;
  for (const auto& [id, held] : guards_) {
    for (const Held& h : held) count(h.pool, h.slot, Hold::kReader);
  }

  size_t allocated = 0, converting = 0;
  for (const auto& pool : pools_) {
    if (pool == nullptr) continue;
    if (Status s = pool->check(found[pool.get()]); !s.ok()) return s;
    allocated += pool->allocated_bytes();
    converting += pool->converting();
  }
  if (converting != conversions) return internal_error("conversions and converting slots disagree");
  if (allocated != budget_.used) {
    return internal_error("slabs hold " + std::to_string(allocated) + " bytes, the budget counts " +
                          std::to_string(budget_.used));
  }
  if (budget_.used > budget_.limit) {
    return internal_error(std::to_string(budget_.used) + " bytes exceed the budget of " +
                          std::to_string(budget_.limit));
  }
  return {};
}

}  // namespace varve::cache
