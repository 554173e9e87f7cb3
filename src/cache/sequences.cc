// Sequences: start, fork, reserve, settle, truncate, finish.

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cache/state.h"

namespace varve::cache {
namespace {

/// Pages that cover positions [0, tokens).
int64_t pages_for(int64_t tokens, int page_tokens) { return (tokens + page_tokens - 1) / page_tokens; }

Status unknown_sequence(const char* operation, SequenceId id) {
  return invalid_argument(std::string(operation) + ": sequence " + std::to_string(id) + " is unknown or finished");
}

}  // namespace

const Sequence* CacheState::find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

Sequence* CacheState::find(SequenceId id) { return const_cast<Sequence*>(std::as_const(*this).find(id)); }

PageId CacheState::new_page(size_t c, int start) {
  Pool* recent = pool(c, Tier::kRecent);
  const uint32_t slot = recent->take(Hold::kMapping);
  Page page;
  page.cls = c;
  page.start = start;
  page.ref = {Tier::kRecent, slot, recent->generation(slot)};
  page.requests = 1;
  return pages_.add(page);
}

Demand CacheState::strip_demand() const {
  Demand demand;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    if (strips(c) != nullptr) demand.slots.emplace_back(strips(c), 1);
  }
  return demand;
}

Result<SequenceId> CacheState::start() {
  if (Status status = make_room(strip_demand(), headroom_, "start of a sequence"); !status.ok()) return status;
  Sequence sequence;
  sequence.classes.resize(config_.classes.size());
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    if (strips(c) != nullptr) sequence.classes[c].strip = strips(c)->take(Hold::kMapping);
  }
  const SequenceId id = next_sequence_++;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

Demand CacheState::fork_demand(const Sequence& parent) const {
  Demand demand;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const bool partial = parent.length % cls(c).page_tokens != 0;
    demand.slots.emplace_back(pool(c, Tier::kRecent), partial ? 1 : 0);
    if (strips(c) != nullptr) demand.slots.emplace_back(strips(c), 1);
  }
  return demand;
}

size_t CacheState::fork_shortfall(SequenceId id) const {
  const Sequence* parent = find(id);
  return parent == nullptr ? 0 : missing_bytes(fork_demand(*parent), headroom_);
}

Result<SequenceId> CacheState::fork(SequenceId id) {
  const Sequence* parent = find(id);
  if (parent == nullptr) return unknown_sequence("fork", id);
  const Demand demand = fork_demand(*parent);
  const std::string what =
      "fork of sequence " + std::to_string(id) + " (" + std::to_string(parent->length) + " tokens)";
  if (Status status = make_room(demand, headroom_, what); !status.ok()) return status;

  Sequence child;
  child.length = parent->length;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const BlockTable& from = parent->classes[c];
    BlockTable to;
    to.first = from.first;
    for (const PageId page_id : from.pages) {
      const Page page = *pages_.find(page_id);
      if (page.start >= parent->length) break;  // reserved only
      if (page.sealed) {
        add_request(page_id);
        to.pages.push_back(page_id);
        continue;
      }
      to.pages.push_back(new_page(c, page.start));
      Pool* recent = pool(c, Tier::kRecent);
      std::memcpy(recent->data(pages_.find(to.pages.back())->ref.slot), recent->data(page.ref.slot),
                  cls(c).slot_bytes[static_cast<size_t>(Tier::kRecent)]);
    }
    if (strips(c) != nullptr) {
      to.strip = strips(c)->take(Hold::kMapping);
      std::memcpy(strips(c)->data(to.strip), strips(c)->data(from.strip), cls(c).strip_bytes);
    }
    child.classes.push_back(std::move(to));
  }
  const SequenceId child_id = next_sequence_++;
  sequences_.emplace(child_id, std::move(child));
  return child_id;
}

Status CacheState::validate(const PrefixPages& prefix, const std::string& what) const {
  const size_t classes = config_.classes.size();
  const std::string head = what + " of " + std::to_string(prefix.tokens) + " tokens: ";
  if (prefix.tokens < 0) return invalid_argument(head + "a negative length");
  if (prefix.pages.size() != classes || (prefix.tokens != 0 && prefix.sinks.size() != classes)) {
    return invalid_argument(head + "pages of " + std::to_string(prefix.pages.size()) + " and sinks of " +
                            std::to_string(prefix.sinks.size()) + " classes, the cache has " + std::to_string(classes));
  }
  for (size_t c = 0; c < classes; ++c) {
    const ClassConfig& config = cls(c);
    const std::string in_class = " in class " + std::to_string(c);
    if (prefix.tokens % config.page_tokens != 0) {
      return invalid_argument(head + "not a multiple of the page of " + std::to_string(config.page_tokens) + in_class);
    }
    if (prefix.tokens != 0 && prefix.sinks[c].size() != config.sink_bytes) {
      return invalid_argument(head + std::to_string(prefix.sinks[c].size()) + " bytes of sinks" + in_class +
                              ", which has " + std::to_string(config.sink_bytes));
    }
    const int first = first_needed_page(cls(c), prefix.tokens);
    const size_t needed = static_cast<size_t>(prefix.tokens / config.page_tokens - first);
    if (prefix.pages[c].size() != needed) {
      return invalid_argument(head + std::to_string(prefix.pages[c].size()) + " pages" + in_class + ", needed are " +
                              std::to_string(needed) + " from position " + std::to_string(first * config.page_tokens));
    }
    for (size_t i = 0; i < needed; ++i) {
      const PageId id = prefix.pages[c][i];
      const Page* page = pages_.find(id);
      const std::string who = head + "page " + std::to_string(id) + in_class;
      if (page == nullptr || page->cls != c || !page->owned()) {
        return invalid_argument(who + " is stale or of another class");
      }
      const int start = (first + static_cast<int>(i)) * config.page_tokens;
      if (!page->sealed) return invalid_argument(who + " at " + std::to_string(page->start) + " is not sealed");
      if (page->start != start) {
        return unsupported(who + " was written for position " + std::to_string(page->start) + ", it cannot serve at " +
                           std::to_string(start));
      }
    }
  }
  return {};
}

Result<SequenceId> CacheState::start(const PrefixPages& prefix, const std::string& what) {
  if (Status status = validate(prefix, what); !status.ok()) return status;
  const std::string head = what + " of " + std::to_string(prefix.tokens) + " tokens";
  if (Status status = make_room(strip_demand(), headroom_, head); !status.ok()) return status;
  Sequence sequence;
  sequence.length = prefix.tokens;
  sequence.classes.resize(config_.classes.size());
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    BlockTable& table = sequence.classes[c];
    table.first = first_needed_page(cls(c), prefix.tokens);
    table.pages = prefix.pages[c];
    for (const PageId page : table.pages) add_request(page);
    if (strips(c) == nullptr) continue;
    table.strip = strips(c)->take(Hold::kMapping);
    if (prefix.tokens == 0 || cls(c).sink_bytes == 0) continue;
    std::memcpy(strips(c)->data(table.strip), prefix.sinks[c].data(), cls(c).sink_bytes);
  }
  const SequenceId id = next_sequence_++;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

Result<SequenceId> CacheState::fork(SequenceId id, int tokens) {
  const Sequence* parent = find(id);
  if (parent == nullptr) return unknown_sequence("fork", id);
  const std::string what =
      "fork of sequence " + std::to_string(id) + " (" + std::to_string(parent->length) + " tokens) at a prefix";
  if (tokens < 0 || tokens > parent->length) {
    return invalid_argument(what + " of " + std::to_string(tokens) + " tokens: out of range");
  }
  PrefixPages prefix;
  prefix.tokens = tokens;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const BlockTable& table = parent->classes[c];
    const int first = first_needed_page(cls(c), tokens);
    if (first < table.first && tokens != 0) {
      return unsupported(what + " of " + std::to_string(tokens) + " tokens needs keys below " +
                         std::to_string(table.first * cls(c).page_tokens) + ", which left the window of " +
                         std::to_string(cls(c).window) + " in class " + std::to_string(c));
    }
    const int end = tokens / cls(c).page_tokens;
    prefix.pages.emplace_back();
    for (int i = first; i < end; ++i) prefix.pages[c].push_back(table.pages[static_cast<size_t>(i - table.first)]);
    const uint8_t* sinks = cls(c).sink_bytes == 0 ? nullptr : strips(c)->data(table.strip);
    prefix.sinks.emplace_back(sinks, cls(c).sink_bytes);
  }
  return start(prefix, what);
}

void CacheState::finish(SequenceId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    for (const PageId page : it->second.classes[c].pages) drop_request(page);
    if (strips(c) != nullptr) strips(c)->drop(it->second.classes[c].strip, Hold::kMapping);
  }
  sequences_.erase(it);
}

Demand CacheState::reserve_demand(const Sequence& sequence, int tokens) const {
  Demand demand;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const BlockTable& table = sequence.classes[c];
    const int64_t wanted = pages_for(int64_t{sequence.length} + tokens, cls(c).page_tokens);
    const int64_t have = table.first + static_cast<int64_t>(table.pages.size());
    demand.slots.emplace_back(pool(c, Tier::kRecent), static_cast<size_t>(std::max<int64_t>(0, wanted - have)));
  }
  return demand;
}

Status CacheState::reserve(SequenceId id, int tokens) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return unknown_sequence("reserve", id);
  if (tokens < 0 || tokens > std::numeric_limits<int>::max() - sequence->length) {
    return invalid_argument("reserve: " + std::to_string(tokens) + " tokens after " + std::to_string(sequence->length) +
                            " of sequence " + std::to_string(id) + " is out of range");
  }
  const Demand demand = reserve_demand(*sequence, tokens);
  const std::string what = "reserving " + std::to_string(tokens) + " tokens after " + std::to_string(sequence->length) +
                           " of sequence " + std::to_string(id);
  if (Status status = make_room(demand, headroom_, what); !status.ok()) return status;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    BlockTable& table = sequence->classes[c];
    for (size_t n = demand.slots[c].second; n > 0; --n) {
      const int index = table.first + static_cast<int>(table.pages.size());
      table.pages.push_back(new_page(c, index * cls(c).page_tokens));
    }
  }
  sequence->reserved = std::max(sequence->reserved, tokens);
  return {};
}

size_t CacheState::shortfall(SequenceId id, int tokens) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr || tokens <= 0) return 0;
  return missing_bytes(reserve_demand(*sequence, tokens), headroom_);
}

Status CacheState::settle(SequenceId id, int tokens) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return unknown_sequence("settle", id);
  if (tokens < 0 || tokens > sequence->reserved) {
    return invalid_argument("settle: " + std::to_string(tokens) + " tokens of sequence " + std::to_string(id) +
                            ", which reserved " + std::to_string(sequence->reserved));
  }
  const int before = sequence->length;
  sequence->length += tokens;
  sequence->reserved -= tokens;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const ClassConfig& config = cls(c);
    BlockTable& table = sequence->classes[c];
    for (int index = before / config.page_tokens; index < sequence->length / config.page_tokens; ++index) {
      pages_.find(table.pages[static_cast<size_t>(index - table.first)])->sealed = true;
    }
    if (config.window == 0 || sequence->length <= config.window) continue;
    const int gone = (sequence->length - config.window) / config.page_tokens - table.first;
    if (gone <= 0) continue;
    for (int i = 0; i < gone; ++i) drop_request(table.pages[static_cast<size_t>(i)]);
    table.pages.erase(table.pages.begin(), table.pages.begin() + gone);
    table.first += gone;
  }
  return {};
}

Status CacheState::truncate(SequenceId id, int tokens) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return unknown_sequence("truncate", id);
  const std::string what = "truncate: position " + std::to_string(tokens) + " of sequence " + std::to_string(id) +
                           " (" + std::to_string(sequence->length) + " tokens) ";
  if (tokens < 0 || tokens > sequence->length) return invalid_argument(what + "is out of range");
  if (tokens < sequence->length) {
    for (size_t c = 0; c < config_.classes.size(); ++c) {
      const ClassConfig& config = cls(c);
      const std::string in_class = " in class " + std::to_string(c);
      const int page_start = tokens / config.page_tokens * config.page_tokens;
      if (page_start != tokens && page_start + config.page_tokens <= sequence->length) {
        return unsupported(what + "lies inside the sealed page that starts at " + std::to_string(page_start) +
                           in_class);
      }
      const int tile = config.tile_tokens;
      if (tile != 0 && tokens % tile != 0 && tokens < sequence->length / tile * tile) {
        return unsupported(what + "lies below the open tile that starts at " +
                           std::to_string(sequence->length / tile * tile) + in_class);
      }
      const int kept_from = sequence->classes[c].first * config.page_tokens;
      if (sequence->classes[c].first > first_needed_page(cls(c), tokens)) {
        return unsupported(what + "needs keys below " + std::to_string(kept_from) + ", which left the window of " +
                           std::to_string(config.window) + in_class);
      }
    }
  }
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    BlockTable& table = sequence->classes[c];
    const size_t keep = static_cast<size_t>(pages_for(tokens, cls(c).page_tokens) - table.first);
    for (size_t i = keep; i < table.pages.size(); ++i) drop_request(table.pages[i]);
    table.pages.resize(keep);
  }
  sequence->length = tokens;
  sequence->reserved = 0;
  return {};
}

int CacheState::revocable(SequenceId id, int keep) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return 0;
  const int64_t kept = int64_t{sequence->length} + keep;
  int64_t end = std::numeric_limits<int>::max();  // the longest that the sequence may become
  const auto below = [&](int64_t limit) { end = std::min(end, limit - 1); };
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const ClassConfig& config = cls(c);
    const auto next = [&](int64_t position, int step) { return (position / step + 1) * step; };
    if (kept % config.page_tokens != 0) below(next(kept, config.page_tokens));
    if (config.tile_tokens != 0) {
      if (kept % config.tile_tokens != 0) below(next(kept, config.tile_tokens));
      end = std::min(end, next(sequence->length, config.tile_tokens));
    }
    if (config.window == 0) continue;
    const int64_t needed = first_needed_page(config, static_cast<int>(kept));
    below((needed + 1) * config.page_tokens + config.window);
  }
  return static_cast<int>(std::max(end - sequence->length, int64_t{keep}));
}

}  // namespace varve::cache
