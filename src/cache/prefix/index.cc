#include "cache/prefix/index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace varve::cache {

Result<std::unique_ptr<PrefixIndex>> PrefixIndex::create(Cache* cache, Options options) {
  if (cache == nullptr) return invalid_argument("prefix cache: no cache");
  if (options.model_digest.empty() || options.codec_fingerprint.empty()) {
    return invalid_argument("prefix cache: the model digest has " + std::to_string(options.model_digest.size()) +
                            " and the codec fingerprint " + std::to_string(options.codec_fingerprint.size()) +
                            " characters, both must say what the pages hold");
  }
  int64_t chunk = 1;
  for (const ClassConfig& cls : cache->config().classes) {
    chunk = std::lcm(chunk, int64_t{cls.page_tokens});
    if (chunk > std::numeric_limits<int>::max()) {
      return invalid_argument("prefix cache: the page sizes have no common multiple below " + std::to_string(chunk));
    }
  }
  return std::unique_ptr<PrefixIndex>(new PrefixIndex(cache, std::move(options), static_cast<int>(chunk)));
}

PrefixIndex::PrefixIndex(Cache* cache, Options options, int chunk_tokens)
    : cache_(cache), options_(std::move(options)), chunk_tokens_(chunk_tokens) {
  counts_.quota_bytes = options_.quota_bytes;
  const auto reach = [&](size_t c) {
    return classes()[c].window == 0 ? std::numeric_limits<int>::max() : classes()[c].window;
  };
  for (size_t c = 1; c < classes().size(); ++c) {
    if (reach(c) > reach(witness_class_)) witness_class_ = c;
  }
}

PrefixIndex::~PrefixIndex() {
  while (!entries_.empty()) remove(entries_.rbegin()->second.get());  // children before parents
}

std::string PrefixIndex::key_of(const Entry* parent, std::string_view tenant, std::span<const int32_t> ids) const {
  return options_.key({.model_digest = options_.model_digest,
                       .codec_fingerprint = options_.codec_fingerprint,
                       .tenant = tenant,
                       .parent = parent == nullptr ? std::string_view() : parent->key,
                       .ids = ids});
}

PrefixIndex::Entry* PrefixIndex::find(const std::string& key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : it->second;
}

bool PrefixIndex::same(const Entry& entry, const Entry* parent, std::string_view tenant, std::span<const int32_t> ids) {
  return entry.parent == parent && entry.tenant == tenant && std::ranges::equal(entry.ids, ids);
}

std::vector<PrefixIndex::Entry*> PrefixIndex::match(std::span<const int32_t> prompt, std::string_view tenant,
                                                    bool* collided) const {
  std::vector<Entry*> path;
  const size_t chunk = static_cast<size_t>(chunk_tokens_);
  for (size_t at = 0; at + chunk < prompt.size(); at += chunk) {  // at least one token is left to compute
    const std::span<const int32_t> ids = prompt.subspan(at, chunk);
    const Entry* parent = path.empty() ? nullptr : path.back();
    Entry* entry = find(key_of(parent, tenant, ids));
    if (entry == nullptr) break;
    if (!same(*entry, parent, tenant, ids)) {
      *collided = true;
      break;
    }
    path.push_back(entry);
  }
  return path;
}

int PrefixIndex::windows_from(int tokens) const {
  int from = tokens;
  for (const ClassConfig& cls : classes()) {
    if (cls.window != 0) from = std::min(from, first_needed_page(cls, tokens) * cls.page_tokens);
  }
  return from;
}

bool PrefixIndex::ends_hit(const Entry& last) const {
  const int from = windows_from(last.end);
  for (const Entry* e = &last; e != nullptr && e->end > from; e = e->parent) {
    for (size_t c = 0; c < classes().size(); ++c) {
      const int first = first_needed_page(classes()[c], last.end) - (e->end / chunk_tokens_ - 1) * pages_per_chunk(c);
      for (int i = std::max(0, first); i < pages_per_chunk(c); ++i) {
        if (e->pages[c][static_cast<size_t>(i)] == 0) return false;
      }
    }
  }
  return true;
}

PrefixPages PrefixIndex::pages_of(std::span<Entry* const> path) const {
  PrefixPages prefix;
  prefix.tokens = static_cast<int>(path.size()) * chunk_tokens_;
  prefix.pages.resize(classes().size());
  for (size_t c = 0; c < classes().size(); ++c) {
    const int per_chunk = pages_per_chunk(c);
    const int end = prefix.tokens / classes()[c].page_tokens;
    for (int p = first_needed_page(classes()[c], prefix.tokens); p < end; ++p) {
      const Entry& entry = *path[static_cast<size_t>(p / per_chunk)];
      prefix.pages[c].push_back(entry.pages[c][static_cast<size_t>(p % per_chunk)]);
    }
    prefix.sinks.emplace_back(path[0]->sinks[c]);
  }
  return prefix;
}

void PrefixIndex::touch(std::span<Entry* const> path) {
  const int from = windows_from(path.back()->end);
  for (Entry* entry : path) {
    entry->use = {tick_, entry->use.hits + 1};
    if (entry->end > from) entry->window_use = {tick_, entry->window_use.hits + 1};
  }
}

PageId PrefixIndex::witness(SequenceId sequence, int tokens) const {
  return cache_->page_at(sequence, witness_class_, tokens - 1);
}

Result<PrefixHit> PrefixIndex::start(std::span<const int32_t> prompt, std::string_view tenant) {
  ++tick_;
  for (;;) {
    bool collided = false;
    std::vector<Entry*> path = match(prompt, tenant, &collided);
    const size_t bound = path.size();
    while (!path.empty() && !ends_hit(*path.back())) path.pop_back();
    PrefixPages prefix;
    if (!path.empty()) prefix = pages_of(path);
    Result<SequenceId> started = path.empty() ? cache_->start() : cache_->start(prefix);
    if (started.ok()) {
      PrefixHit hit{.sequence = *started, .tokens = static_cast<int>(path.size()) * chunk_tokens_};
      hit.lost_tokens = static_cast<int>(bound - path.size()) * chunk_tokens_;
      counts_.collisions += collided;
      counts_.shortened += hit.lost_tokens != 0;
      counts_.lost_tokens += static_cast<uint64_t>(hit.lost_tokens);
      counts_.misses += path.empty();
      if (path.empty()) return hit;
      ++counts_.hits;
      counts_.hit_tokens += static_cast<uint64_t>(hit.tokens);
      for (const auto& pages : prefix.pages) hit.pages += pages.size();
      touch(path);
      Cursor& cursor = cursors_[hit.sequence];
      cursor.tenant = tenant;
      for (const Entry* entry : path) cursor.keys.push_back(entry->key);
      cursor.number = path.back()->number;
      cursor.checked = hit.tokens;
      cursor.last = witness(hit.sequence, hit.tokens);
      return hit;
    }
    if (started.status().code() != StatusCode::kResourceExhausted) return started.status();
    // The hit's own chunks go last: a shorter hit is better than none, and a plain start better than a refusal.
    for (Entry* entry : path) entry->pinned = true;
    size_t freed = evict(cache_->shortfall());
    for (Entry* entry : path) entry->pinned = false;
    if (freed == 0) freed = evict(cache_->shortfall());
    if (freed == 0) return started.status();
  }
}

bool PrefixIndex::resumes(const Cursor& cursor, SequenceId sequence, std::string_view tenant) const {
  if (cursor.tenant != tenant || cursor.checked > cache_->length(sequence)) return false;
  if (cursor.checked == 0) return true;
  const PageId page = witness(sequence, cursor.checked);
  if (page == 0 || page != cursor.last) return false;
  if (cursor.keys.empty()) return true;
  const Entry* entry = find(cursor.keys.back());
  return entry != nullptr && entry->number == cursor.number;  // else it was evicted
}

Status PrefixIndex::seal(SequenceId sequence, std::span<const int32_t> tokens, std::string_view tenant) {
  const int length = cache_->length(sequence);
  if (!cache_->contains(sequence) || tokens.size() < static_cast<size_t>(length)) {
    return invalid_argument("seal: " + std::to_string(tokens.size()) + " tokens for sequence " +
                            std::to_string(sequence) + ", which is " +
                            (cache_->contains(sequence) ? std::to_string(length) + " long" : "unknown or finished"));
  }
  if (options_.quota_bytes != 0) {
    Cursor& cursor = cursors_[sequence];
    if (!resumes(cursor, sequence, tenant)) {
      cursor = {};
      cursor.tenant = tenant;
    }
    while (!cursor.blocked && cursor.checked + chunk_tokens_ <= length) {
      cursor.blocked = !advance(sequence, tokens, &cursor);
      cursor.checked += chunk_tokens_;
      cursor.last = witness(sequence, cursor.checked);
    }
  }
  trim();
  return {};
}

bool PrefixIndex::advance(SequenceId sequence, std::span<const int32_t> tokens, Cursor* cursor) {
  Entry* parent = cursor->keys.empty() ? nullptr : find(cursor->keys.back());
  const std::span<const int32_t> ids =
      tokens.subspan(static_cast<size_t>(cursor->checked), static_cast<size_t>(chunk_tokens_));
  std::string key = key_of(parent, cursor->tenant, ids);
  Entry* entry = find(key);
  if (entry == nullptr) {
    entry = bind(sequence, parent, cursor->tenant, ids, std::move(key), cursor->checked);
    if (entry == nullptr) return false;
  } else if (!same(*entry, parent, cursor->tenant, ids)) {
    ++counts_.collisions;
    return false;
  } else {
    fill_in(sequence, cursor->checked, entry);
  }
  entry->use.tick = entry->window_use.tick = tick_;
  cursor->keys.push_back(entry->key);
  cursor->number = entry->number;
  return true;
}

PrefixIndex::Entry* PrefixIndex::bind(SequenceId sequence, Entry* parent, std::string_view tenant,
                                      std::span<const int32_t> ids, std::string key, int start) {
  auto entry = std::make_unique<Entry>();
  size_t sinks_bytes = 0;
  if (parent == nullptr) {
    for (const ClassConfig& cls : classes()) sinks_bytes += cls.sink_bytes;
    // Copies of sinks are not slots: they are kept under the quota here, slots by trim().
    const auto fits = [&] { return quota_use() + sinks_bytes <= options_.quota_bytes; };
    if (!fits()) keep_to_quota(fits);
    if (!fits()) {
      ++counts_.over_quota;
      return nullptr;
    }
  }
  entry->pages.resize(classes().size());
  for (size_t c = 0; c < classes().size(); ++c) entry->pages[c].resize(static_cast<size_t>(pages_per_chunk(c)));
  fill_in(sequence, start, entry.get());
  bool whole = true;
  for (size_t c = 0; c < classes().size(); ++c) {
    whole = whole && (classes()[c].window != 0 || std::ranges::find(entry->pages[c], 0u) == entry->pages[c].end());
  }
  if (!whole) {
    ++counts_.held_elsewhere;
    for (size_t c = 0; c < classes().size(); ++c) {
      for (const PageId page : entry->pages[c]) {
        counts_.bound_pages -= page != 0;
        cache_->release(c, page);
      }
    }
    return nullptr;
  }
  if (parent == nullptr) {
    for (size_t c = 0; c < classes().size(); ++c) {
      const size_t bytes = classes()[c].sink_bytes;
      const uint8_t* strip = bytes == 0 ? nullptr : cache_->strip(sequence, c);
      entry->sinks.emplace_back(strip, strip + bytes);
    }
    counts_.sinks_bytes += sinks_bytes;
  } else {
    ++parent->children;
  }
  entry->number = next_number_++;
  entry->key = std::move(key);
  entry->tenant = tenant;
  entry->parent = parent;
  entry->end = start + chunk_tokens_;
  entry->ids.assign(ids.begin(), ids.end());
  Entry* bound = entry.get();
  by_key_.emplace(bound->key, bound);
  entries_.emplace(bound->number, std::move(entry));
  return bound;
}

void PrefixIndex::fill_in(SequenceId sequence, int start, Entry* entry) {
  for (size_t c = 0; c < classes().size(); ++c) {
    for (size_t i = 0; i < entry->pages[c].size(); ++i) {
      if (entry->pages[c][i] != 0) continue;
      const PageId page = cache_->page_at(sequence, c, start + static_cast<int>(i) * classes()[c].page_tokens);
      if (page == 0 || !cache_->hold(c, page).ok()) continue;  // left its window, or bound in another chain
      entry->pages[c][i] = page;
      ++counts_.bound_pages;
    }
  }
}

bool PrefixIndex::live(const Entry& entry) const {
  for (const auto& pages : entry.pages) {
    for (const PageId page : pages) {
      if (cache_->requests(page) != 0) return true;
    }
  }
  return false;
}

bool PrefixIndex::has_idle(const Entry& entry, bool windows_only) const {
  for (size_t c = 0; c < classes().size(); ++c) {
    if (windows_only && classes()[c].window == 0) continue;
    for (const PageId page : entry.pages[c]) {
      if (page != 0 && cache_->requests(page) == 0) return true;
    }
  }
  return false;
}

void PrefixIndex::thin(Entry* entry, Reason reason) {
  for (size_t c = 0; c < classes().size(); ++c) {
    if (classes()[c].window == 0) continue;
    for (PageId& page : entry->pages[c]) {
      if (page == 0 || cache_->requests(page) != 0) continue;
      cache_->release(c, page);
      page = 0;
      --counts_.bound_pages;
      ++counts_.evicted_pages[reason];
    }
  }
}

void PrefixIndex::remove(Entry* entry) {
  for (size_t c = 0; c < classes().size(); ++c) {
    for (const PageId page : entry->pages[c]) {
      counts_.bound_pages -= page != 0;
      cache_->release(c, page);
    }
  }
  for (const auto& sinks : entry->sinks) counts_.sinks_bytes -= sinks.size();
  if (entry->parent != nullptr) --entry->parent->children;
  by_key_.erase(entry->key);
  entries_.erase(entry->number);
}

template <typename Enough>
void PrefixIndex::reclaim(const Enough& enough, Reason reason, bool with_live) {
  enum Kind { kWindows, kChunk, kWindowsOfAnEnd };  // the order of equal values
  struct Candidate {
    uint64_t value;
    Kind kind;
    uint64_t number;
    auto operator<=>(const Candidate&) const = default;
  };
  std::set<Candidate> candidates;
  const auto add_chunk = [&](const Entry& e) {
    if (e.pinned || e.children != 0 || (with_live ? !e.covers_idle : live(e))) return false;
    // Where no hit can end any more, and none leads on, the chunk is of no use.
    candidates.insert({ends_hit(e) ? e.use.value() : 0, kChunk, e.number});
    return true;
  };
  for (const auto& [number, entry] : entries_) {
    entry->covers_idle = has_idle(*entry, false) || (entry->parent != nullptr && entry->parent->covers_idle);
    entry->end_value = 0;
    if (entry->children != 0) continue;
    const int from = windows_from(entry->end);
    for (Entry* e = entry.get(); e != nullptr && e->end > from; e = e->parent) {
      e->end_value = std::max(e->end_value, entry->use.value());
    }
  }
  for (const auto& [number, entry] : entries_) {
    if (add_chunk(*entry) || entry->pinned || !has_idle(*entry, true)) continue;
    const Kind kind = entry->end_value == 0 ? kWindows : kWindowsOfAnEnd;
    candidates.insert({std::max(entry->window_use.value(), entry->end_value), kind, number});
  }
  while (!enough() && !candidates.empty()) {
    const Candidate least = *candidates.begin();
    candidates.erase(candidates.begin());
    const auto it = entries_.find(least.number);
    if (it == entries_.end()) continue;
    Entry* entry = it->second.get();
    if (least.kind != kChunk) {
      thin(entry, reason);
      continue;
    }
    Entry* parent = entry->parent;
    for (const auto& pages : entry->pages) {
      counts_.evicted_pages[reason] += pages.size() - static_cast<size_t>(std::ranges::count(pages, PageId{0}));
    }
    ++counts_.evicted_entries[reason];
    remove(entry);
    if (parent != nullptr) add_chunk(*parent);
  }
}

size_t PrefixIndex::evict(size_t bytes) {
  const auto occupied = [&] {
    size_t sum = 0;
    for (size_t c = 0; c < classes().size(); ++c) {
      for (size_t t = 0; t < kTiers; ++t) {
        const PoolStats pool = cache_->pool(c, static_cast<Tier>(t));
        sum += (pool.slots_total - pool.slots_free) * pool.slot_bytes;
      }
    }
    return sum;
  };
  const size_t before = occupied();
  reclaim([&] { return before - occupied() >= bytes; }, PrefixStats::kPressure, false);
  return before - occupied();
}

template <typename Enough>
void PrefixIndex::keep_to_quota(const Enough& enough) {
  reclaim(enough, PrefixStats::kQuota, false);
  // What is left lies before chunks that sequences hold: they have pages of their own for it, or it left their window.
  if (!enough()) reclaim(enough, PrefixStats::kQuota, true);
}

void PrefixIndex::trim() {
  std::erase_if(cursors_, [&](const auto& cursor) { return !cache_->contains(cursor.first); });
  const auto fits = [&] { return quota_use() <= options_.quota_bytes; };
  if (!fits()) keep_to_quota(fits);
}

PrefixStats PrefixIndex::stats() const {
  PrefixStats stats = counts_;
  stats.entries = entries_.size();
  stats.cached_bytes = cache_->cached_bytes();
  return stats;
}

Status PrefixIndex::check() const {
  std::map<const Entry*, size_t> children;
  size_t pages = 0, sinks_bytes = 0;
  for (const auto& [number, entry] : entries_) {
    const std::string who = "prefix chunk " + std::to_string(number);
    if (find(entry->key) != entry.get()) return internal_error(who + " is not found by its key");
    if (entry->pinned) return internal_error(who + " is pinned by nobody");
    if (entry->ids.size() != static_cast<size_t>(chunk_tokens_)) return internal_error(who + " is not whole");
    if (entry->parent != nullptr) {
      const auto parent = entries_.find(entry->parent->number);
      if (entry->parent->number >= number || parent == entries_.end() || parent->second.get() != entry->parent) {
        return internal_error(who + " dangles");
      }
      ++children[entry->parent];
    }
    const int start = entry->parent == nullptr ? 0 : entry->parent->end;
    if (entry->end != start + chunk_tokens_) return internal_error(who + " is out of place");
    for (size_t c = 0; c < classes().size(); ++c) {
      for (size_t i = 0; i < entry->pages[c].size(); ++i) {
        const PageId id = entry->pages[c][i];
        if (id == 0 && classes()[c].window != 0) continue;
        const std::optional<PageInfo> page = cache_->page(id);
        if (!page || !page->cached || !page->sealed || page->cls != c ||
            page->start != start + static_cast<int>(i) * classes()[c].page_tokens) {
          return internal_error(who + " names a page that it does not hold");
        }
        ++pages;
      }
    }
    for (const auto& sinks : entry->sinks) sinks_bytes += sinks.size();
  }
  for (const auto& [number, entry] : entries_) {
    if (children[entry.get()] != entry->children) {
      return internal_error("prefix chunk " + std::to_string(number) + " miscounts its children");
    }
  }
  if (by_key_.size() != entries_.size()) return internal_error("the prefix cache finds chunks that are gone");
  if (pages != counts_.bound_pages || pages != cache_->cached_pages()) {
    return internal_error("the prefix cache names " + std::to_string(pages) + " pages, counts " +
                          std::to_string(counts_.bound_pages) + ", and the cache says " +
                          std::to_string(cache_->cached_pages()));
  }
  if (sinks_bytes != counts_.sinks_bytes) return internal_error("the prefix cache miscounts its sinks");
  return {};
}

}  // namespace varve::cache
