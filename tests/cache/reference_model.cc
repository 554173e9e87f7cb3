#include "reference_model.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

namespace varve::cache::testing {
namespace {

template <typename... Args>
std::string say(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

constexpr size_t line(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ReferenceModel::ReferenceModel(const Config& config)
    : config_(config), budget_(config.budget_bytes), exact_room_(config.slab_bytes == 0) {
  auto cache = Cache::create(config);
  if (cache.ok()) cache_ = std::move(cache).value();
  for (size_t c = 0; c < config.classes.size(); ++c) {
    for (const Tier tier : {Tier::kStale1, Tier::kStale2}) headroom_ = std::max(headroom_, slot_bytes(c, tier));
  }
}

size_t ReferenceModel::slot_bytes(size_t cls, Tier tier) const {
  return line(config_.classes[cls].slot_bytes[static_cast<size_t>(tier)]);
}

size_t ReferenceModel::used_bytes() const {
  size_t bytes = 0;
  for (const SlotPtr& slot : slots_) bytes += line(slot->bytes);
  return bytes;
}

bool ReferenceModel::sealed(const Page& page) const {
  return page.cached || std::any_of(page.holders.begin(), page.holders.end(), [&](SequenceId id) {
           return sequences_.at(id).length >= page.start + config_.classes[page.cls].page_tokens;
         });
}

ReferenceModel::Sequence* ReferenceModel::pick(size_t which, SequenceId* id) {
  if (sequences_.empty()) return nullptr;
  auto it = sequences_.begin();
  std::advance(it, which % sequences_.size());
  *id = it->first;
  return &it->second;
}

void ReferenceModel::stamp(const SlotPtr& slot) {
  slot->stamp = next_stamp_++ * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i + 8 <= slot->bytes; i += 8) std::memcpy(slot->data + i, &slot->stamp, 8);
}

bool ReferenceModel::stamped(const Slot& slot, uint64_t stamp) const {
  for (size_t i = 0; i + 8 <= slot.bytes; i += 8) {
    if (std::memcmp(slot.data + i, &stamp, 8) != 0) return false;
  }
  return true;
}

ReferenceModel::SlotPtr ReferenceModel::adopt(size_t cls, std::optional<PageRef> ref, uint8_t* data, size_t bytes) {
  auto slot = std::make_shared<Slot>(Slot{cls, ref, data, bytes, 0});
  slots_.insert(slot);
  return slot;
}

ReferenceModel::PagePtr ReferenceModel::adopt_page(SequenceId id, size_t cls, const BlockEntry& block) {
  auto page = std::make_shared<Page>();
  page->cls = cls;
  page->id = block.page;
  page->start = block.start;
  page->holders = {id};
  const ClassConfig& config = config_.classes[cls];
  page->slot = adopt(cls, block.ref, cache_->slot(cls, block.ref), config.slot_bytes[0]);
  page->slot->mapped = 1;
  pages_[page->id] = page;
  return page;
}

void ReferenceModel::release(const SlotPtr& slot) {
  if (slot->mapped + slot->readers + slot->source + slot->destination != 0) {
    drained_ += slot->mapped == 0;
    return;
  }
  slots_.erase(slot);
  if (slot->ref) freed_.emplace_back(slot->cls, *slot->ref);
}

void ReferenceModel::drop_holder(const PagePtr& page, SequenceId id) {
  page->holders.erase(id);
  let_go(page);
}

void ReferenceModel::let_go(const PagePtr& page) {
  if (page->owned()) return;
  page->slot->mapped = 0;
  release(page->slot);
  if (page->converting) return;
  pages_.erase(page->id);
  gone_.push_back(page->id);
}

std::vector<ReferenceModel::PagePtr> ReferenceModel::every_page() const {
  std::vector<PagePtr> all;
  for (const auto& [id, page] : pages_) {
    if (page->owned()) all.push_back(page);
  }
  return all;
}

std::string ReferenceModel::start() {
  size_t bytes = 0;
  for (const ClassConfig& cls : config_.classes) bytes += line(cls.strip_bytes);
  const bool fit = fits(bytes, headroom_);
  auto id = cache_->start();
  if (!id.ok()) {
    ++refusals_;
    return fit && exact_room_ ? "start refused although it fits: " + id.status().message() : "";
  }
  if (!fit) return "start succeeded although it cannot fit";
  if (sequences_.contains(*id) || std::count(finished_.begin(), finished_.end(), *id)) return "sequence id reused";
  std::string wrong;
  sequences_[*id] = take_strips(*id, {}, &wrong);
  return wrong;
}

ReferenceModel::Sequence ReferenceModel::take_strips(SequenceId id, const std::vector<std::vector<uint8_t>>& sinks,
                                                     std::string* wrong) {
  Sequence sequence;
  sequence.pages.resize(config_.classes.size());
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const size_t bytes = config_.classes[c].strip_bytes;
    sequence.strips.push_back(bytes == 0 ? nullptr : adopt(c, std::nullopt, cache_->strip(id, c), bytes));
    if (bytes == 0) continue;
    const SlotPtr& strip = sequence.strips[c];
    strip->mapped = 1;
    const size_t copied = sinks.empty() ? 0 : sinks[c].size();
    if (copied != 0 && std::memcmp(strip->data, sinks[c].data(), copied) != 0) *wrong = "the sinks were not copied";
    if (!std::all_of(strip->data + copied, strip->data + bytes, [](uint8_t b) { return b == kPoison; })) {
      *wrong = "a new strip shows old bytes";
    }
    stamp(strip);
  }
  return sequence;
}

std::string ReferenceModel::adopt_prefix(SequenceId id, int tokens, const std::vector<std::vector<PagePtr>>& pages,
                                         const std::vector<std::vector<uint8_t>>& sinks) {
  std::string wrong;
  Sequence sequence = take_strips(id, sinks, &wrong);
  sequence.length = tokens;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    for (const PagePtr& page : pages[c]) {
      revived_ += page->holders.empty();
      page->holders.insert(id);
      sequence.pages[c][page->start] = page;
    }
  }
  sequences_[id] = std::move(sequence);
  ++prefix_starts_;
  return wrong;
}

std::string ReferenceModel::fork(size_t which) {
  SequenceId parent_id = 0;
  if (pick(which, &parent_id) == nullptr) return "";
  size_t bytes = 0;
  const int length = sequences_[parent_id].length;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    bytes += line(config_.classes[c].strip_bytes);
    if (length % config_.classes[c].page_tokens != 0) bytes += slot_bytes(c, Tier::kRecent);
  }
  const bool fit = fits(bytes, headroom_);
  auto id = cache_->fork(parent_id);
  if (!id.ok()) {
    ++refusals_;
    return fit && exact_room_ ? "fork refused although it fits: " + id.status().message() : "";
  }
  if (!fit) return "fork succeeded although it cannot fit";
  Sequence& child = sequences_[*id];
  Sequence& parent = sequences_[parent_id];
  child.length = length;
  child.pages.resize(config_.classes.size());
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const auto blocks = cache_->blocks(*id, c);
    size_t i = 0;
    for (const auto& [start, page] : parent.pages[c]) {
      if (start >= length) break;
      if (i == blocks.size()) return "fork lost a page";
      const BlockEntry& block = blocks[i++];
      if (start + config_.classes[c].page_tokens <= length) {
        if (block.page != page->id) return "fork copied a sealed page";
        page->holders.insert(*id);
        child.pages[c][start] = page;
        continue;
      }
      if (block.page == page->id) return "fork shared the unsealed page";
      child.pages[c][start] = adopt_page(*id, c, block);
      if (!stamped(*child.pages[c][start]->slot, page->slot->stamp)) return "fork did not copy the unsealed page";
      stamp(child.pages[c][start]->slot);
    }
    const size_t strip = config_.classes[c].strip_bytes;
    child.strips.push_back(strip == 0 ? nullptr : adopt(c, std::nullopt, cache_->strip(*id, c), strip));
    if (strip == 0) continue;
    child.strips[c]->mapped = 1;
    if (!stamped(*child.strips[c], parent.strips[c]->stamp)) return "fork did not copy the strip";
    stamp(child.strips[c]);
  }
  return "";
}

void ReferenceModel::finish_model(SequenceId id) {
  Sequence& sequence = sequences_[id];
  for (auto& pages : sequence.pages) {
    for (auto& [start, page] : pages) drop_holder(page, id);
  }
  for (const SlotPtr& strip : sequence.strips) {
    if (strip == nullptr) continue;
    strip->mapped = 0;
    release(strip);
  }
  sequences_.erase(id);
  finished_.push_back(id);
}

std::string ReferenceModel::finish(size_t which, bool again) {
  SequenceId id = 0;
  if (again) {
    if (!finished_.empty()) cache_->finish(finished_[which % finished_.size()]);
    return "";
  }
  if (pick(which, &id) == nullptr) return "";
  cache_->finish(id);
  finish_model(id);
  return "";
}

std::string ReferenceModel::reserve(size_t which, int tokens) {
  SequenceId id = 0;
  Sequence* sequence = pick(which, &id);
  if (sequence == nullptr) return "";
  size_t bytes = 0;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const int page_tokens = config_.classes[c].page_tokens;
    const int have = sequence->pages[c].empty() ? 0 : sequence->pages[c].rbegin()->first + page_tokens;
    for (int start = have; start < sequence->length + tokens; start += page_tokens) {
      bytes += slot_bytes(c, Tier::kRecent);
    }
  }
  const bool fit = fits(bytes, headroom_);
  const size_t missing = cache_->shortfall(id, tokens);
  const Status status = cache_->reserve(id, tokens);
  if (status.ok() != (missing == 0)) return say("shortfall ", missing, " but reserve says ", status.message());
  if (!status.ok()) {
    ++refusals_;
    if (status.code() != StatusCode::kResourceExhausted) return "reserve: " + status.message();
    return fit && exact_room_ ? "reserve refused although it fits: " + status.message() : "";
  }
  if (!fit) return "reserve succeeded although it cannot fit";
  sequence->reserved = std::max(sequence->reserved, tokens);
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    for (const BlockEntry& block : cache_->blocks(id, c)) {
      if (sequence->pages[c].contains(block.start)) continue;
      const PagePtr page = adopt_page(id, c, block);
      sequence->pages[c][block.start] = page;
      if (page->slot->data == nullptr) return "a reserved page has no slot";
      if (!stamped(*page->slot, 0xA5A5A5A5A5A5A5A5u)) return "a new page shows old bytes";
      stamp(page->slot);
    }
  }
  return "";
}

std::string ReferenceModel::settle(size_t which, int tokens) {
  SequenceId id = 0;
  Sequence* sequence = pick(which, &id);
  if (sequence == nullptr) return "";
  const Status status = cache_->settle(id, tokens);
  if (status.ok() != (tokens <= sequence->reserved)) return say("settle ", tokens, " of ", sequence->reserved);
  if (!status.ok()) return "";
  sequence->length += tokens;
  sequence->reserved -= tokens;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const ClassConfig& cls = config_.classes[c];
    if (cls.window == 0) continue;
    auto& pages = sequence->pages[c];
    while (!pages.empty() && pages.begin()->first + cls.page_tokens <= sequence->length - cls.window) {
      drop_holder(pages.begin()->second, id);
      pages.erase(pages.begin());
    }
  }
  return "";
}

std::string ReferenceModel::truncate(size_t which, int tokens) {
  SequenceId id = 0;
  Sequence* sequence = pick(which, &id);
  if (sequence == nullptr) return "";
  StatusCode expected = tokens > sequence->length ? StatusCode::kInvalidArgument : StatusCode::kOk;
  for (size_t c = 0; c < config_.classes.size() && tokens < sequence->length; ++c) {
    const ClassConfig& cls = config_.classes[c];
    for (const auto& [start, page] : sequence->pages[c]) {
      const bool full = start + cls.page_tokens <= sequence->length;
      if (full && start < tokens && tokens < start + cls.page_tokens) expected = StatusCode::kUnsupported;
    }
    const int kept_from = sequence->pages[c].empty() ? 0 : sequence->pages[c].begin()->first;
    const int needed_from = cls.window == 0 ? 0 : std::max(0, tokens - cls.window + 1);
    if (needed_from < kept_from) expected = StatusCode::kUnsupported;
  }
  const Status status = cache_->truncate(id, tokens);
  if (status.code() != expected) return say("truncate to ", tokens, " of ", sequence->length, ": ", status.message());
  if (!status.ok()) return "";
  sequence->length = tokens;
  sequence->reserved = 0;
  for (auto& pages : sequence->pages) {
    while (!pages.empty() && pages.rbegin()->first >= tokens) {
      const PagePtr page = pages.rbegin()->second;
      pages.erase(std::prev(pages.end()));
      drop_holder(page, id);
    }
  }
  return "";
}

std::string ReferenceModel::read(uint64_t subset) {
  std::vector<SequenceId> ids;
  std::vector<SlotPtr> held;
  size_t bit = 0;
  for (const auto& [id, sequence] : sequences_) {
    if ((subset >> (bit++ % 64) & 1) == 0) continue;
    ids.push_back(id);
    for (const auto& pages : sequence.pages) {
      for (const auto& [start, page] : pages) held.push_back(page->slot);
    }
    for (const SlotPtr& strip : sequence.strips) {
      if (strip != nullptr) held.push_back(strip);
    }
  }
  if (!finished_.empty()) ids.push_back(finished_.back());
  for (const SlotPtr& slot : held) ++slot->readers;
  guards_.emplace_back(cache_->read(ids), std::move(held));
  return "";
}

std::string ReferenceModel::drop_guard(size_t which) {
  if (guards_.empty()) return "";
  const auto it = guards_.begin() + static_cast<ptrdiff_t>(which % guards_.size());
  const std::vector<SlotPtr> held = std::move(it->second);
  guards_.erase(it);
  for (const SlotPtr& slot : held) --slot->readers;
  for (const SlotPtr& slot : std::set<SlotPtr>(held.begin(), held.end())) release(slot);
  return "";
}

std::string ReferenceModel::retier(size_t which, Tier to) {
  const std::vector<PagePtr> all = every_page();
  const size_t choices = all.size() + (gone_.empty() ? 0 : 1);
  if (choices == 0) return "";
  which %= choices;
  if (which == all.size()) {
    const StatusCode code = cache_->retier(0, gone_.back(), to).status().code();
    return code == StatusCode::kInvalidArgument ? "" : "retier of a page that is gone";
  }
  const PagePtr& page = all[which];
  const Tier from = page->slot->ref->tier;
  const size_t bytes = slot_bytes(page->cls, to);
  const bool valid = sealed(*page) && !page->converting && from != to && bytes != 0;
  const bool fit = fits(bytes, 0);
  auto conversion = cache_->retier(page->cls, page->id, to);
  if (!conversion.ok()) {
    const Status& status = conversion.status();
    if (!valid) return status.code() == StatusCode::kInvalidArgument ? "" : "retier: " + status.message();
    ++refusals_;
    if (status.code() != StatusCode::kResourceExhausted) return "retier: " + status.message();
    return fit && exact_room_ ? "retier refused although it fits: " + status.message() : "";
  }
  if (!valid) return "retier accepted what it must refuse";
  if (!fit) return "retier succeeded although it cannot fit";
  Flight flight;
  flight.conversion = std::move(conversion).value();
  flight.page = page;
  flight.source = page->slot;
  flight.destination = adopt(page->cls, flight.conversion.to(), flight.conversion.dst(),
                             config_.classes[page->cls].slot_bytes[static_cast<size_t>(to)]);
  flight.destination->destination = 1;
  if (flight.conversion.src() != flight.source->data) return "the source is not the page's slot";
  if (!stamped(*flight.destination, 0xA5A5A5A5A5A5A5A5u)) return "a destination shows old bytes";
  stamp(flight.destination);
  flight.source->source = 1;
  page->converting = true;
  flights_.push_back(std::move(flight));
  return "";
}

std::string ReferenceModel::publish(size_t which) {
  if (flights_.empty()) return "";
  const auto it = flights_.begin() + static_cast<ptrdiff_t>(which % flights_.size());
  Flight flight = std::move(*it);
  flights_.erase(it);
  const bool owned = flight.page->owned();
  cached_moves_ += flight.page->holders.empty() && owned;
  if (flight.conversion.publish() != owned) return "publish disagrees about the owners";
  flight.page->converting = false;
  flight.source->source = 0;
  flight.destination->destination = 0;
  if (owned) {
    flight.source->mapped = 0;
    flight.destination->mapped = 1;
    flight.page->slot = flight.destination;
    ++published_;
  } else {
    pages_.erase(flight.page->id);
    gone_.push_back(flight.page->id);
    ++orphans_;
  }
  release(flight.source);
  release(flight.destination);
  return "";
}

std::string ReferenceModel::abandon(size_t which) {
  if (flights_.empty()) return "";
  const auto it = flights_.begin() + static_cast<ptrdiff_t>(which % flights_.size());
  const Flight flight = std::move(*it);
  flights_.erase(it);
  { const Conversion dropped = std::move(const_cast<Flight&>(flight).conversion); }
  flight.page->converting = false;
  flight.source->source = 0;
  flight.destination->destination = 0;
  if (!flight.page->owned()) {
    pages_.erase(flight.page->id);
    gone_.push_back(flight.page->id);
  }
  release(flight.source);
  release(flight.destination);
  return "";
}

std::string ReferenceModel::hold(size_t which) {
  const std::vector<PagePtr> all = every_page();
  const size_t choices = all.size() + (gone_.empty() ? 0 : 1);
  if (choices == 0) return "";
  which %= choices;
  if (which == all.size()) {
    return cache_->hold(0, gone_.back()).code() == StatusCode::kInvalidArgument ? "" : "hold of a page that is gone";
  }
  const PagePtr& page = all[which];
  const bool valid = sealed(*page) && !page->cached;
  const Status status = cache_->hold(page->cls, page->id);
  if (status.code() != (valid ? StatusCode::kOk : StatusCode::kInvalidArgument)) return "hold: " + status.message();
  if (valid) page->cached = true;
  return "";
}

std::string ReferenceModel::seal(size_t which, bool then_finish) {
  SequenceId id = 0;
  Sequence* sequence = pick(which, &id);
  if (sequence == nullptr) return "";
  for (const auto& pages : sequence->pages) {
    for (const auto& [start, page] : pages) {
      if (!sealed(*page) || page->cached) continue;
      if (Status status = cache_->hold(page->cls, page->id); !status.ok()) return "seal: " + status.message();
      page->cached = true;
    }
  }
  if (!then_finish) return "";
  cache_->finish(id);
  finish_model(id);
  return "";
}

std::string ReferenceModel::release(size_t which, bool other) {
  std::vector<PagePtr> held, rest;
  for (const auto& [id, page] : pages_) (page->cached ? held : rest).push_back(page);
  if (other) {
    if (!rest.empty()) cache_->release(rest[which % rest.size()]->cls, rest[which % rest.size()]->id);
    if (!gone_.empty()) cache_->release(0, gone_[which % gone_.size()]);
    return "";
  }
  if (held.empty()) return "";
  const PagePtr page = held[which % held.size()];
  cache_->release(page->cls, page->id);
  page->cached = false;
  let_go(page);
  return "";
}

std::string ReferenceModel::start_prefix(size_t pick, int tokens, uint32_t spoil) {
  PrefixPages prefix{tokens, {}, {}};
  std::vector<std::vector<PagePtr>> pages;
  std::vector<std::vector<uint8_t>> sinks;
  StatusCode expected = StatusCode::kOk;
  size_t bytes = 0;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const ClassConfig& cls = config_.classes[c];
    bytes += line(cls.strip_bytes);
    pages.emplace_back();
    prefix.pages.emplace_back();
    sinks.emplace_back(cls.sink_bytes, static_cast<uint8_t>(next_stamp_));
    if (tokens % cls.page_tokens != 0) expected = StatusCode::kInvalidArgument;
    const int from = cls.window == 0 ? 0 : std::max(0, tokens - cls.window + 1);
    for (int start = from / cls.page_tokens * cls.page_tokens; start < tokens; start += cls.page_tokens) {
      std::vector<PagePtr> there;
      for (const PagePtr& page : every_page()) {
        if (page->cls == c && page->start == start && sealed(*page)) there.push_back(page);
      }
      pages[c].push_back(there.empty() ? nullptr : there[pick % there.size()]);
      prefix.pages[c].push_back(there.empty() ? (gone_.empty() ? 0 : gone_.back()) : pages[c].back()->id);
      if (there.empty()) expected = StatusCode::kInvalidArgument;
    }
  }
  for (const std::vector<uint8_t>& s : sinks) prefix.sinks.emplace_back(s);
  std::vector<PageId>& last = prefix.pages.back();
  if (spoil == 1 && !last.empty()) {  // a page too few
    last.pop_back();
    expected = StatusCode::kInvalidArgument;
  } else if (spoil == 2 && last.size() > 1 && expected == StatusCode::kOk) {  // pages at each other's positions
    std::swap(last.front(), last.back());
    expected = StatusCode::kUnsupported;
  } else if (spoil == 3 && !last.empty()) {  // an unsealed one, or of another class
    for (const PagePtr& page : every_page()) {
      if (page->cls == prefix.pages.size() - 1 && sealed(*page)) continue;
      last.back() = page->id;
      expected = StatusCode::kInvalidArgument;
      break;
    }
  }
  const bool fit = fits(bytes, headroom_);
  const auto id = cache_->start(prefix);
  if (expected != StatusCode::kOk) {
    return id.status().code() == expected ? "" : "start from a bad prefix: " + id.status().message();
  }
  if (!id.ok()) {
    ++refusals_;
    if (id.status().code() != StatusCode::kResourceExhausted) return "start_prefix: " + id.status().message();
    return fit && exact_room_ ? "start from a prefix refused although it fits: " + id.status().message() : "";
  }
  if (!fit) return "start from a prefix succeeded although it cannot fit";
  return adopt_prefix(*id, tokens, pages, tokens == 0 ? std::vector<std::vector<uint8_t>>() : sinks);
}

std::string ReferenceModel::fork_at(size_t which, int tokens) {
  SequenceId parent_id = 0;
  const Sequence* parent = pick(which, &parent_id);
  if (parent == nullptr) return "";
  StatusCode expected = StatusCode::kOk;
  size_t bytes = 0;
  std::vector<std::vector<PagePtr>> pages;
  std::vector<std::vector<uint8_t>> sinks;
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    const ClassConfig& cls = config_.classes[c];
    bytes += line(cls.strip_bytes);
    if (tokens % cls.page_tokens != 0 && expected == StatusCode::kOk) expected = StatusCode::kInvalidArgument;
    const int from = cls.window == 0 ? 0 : std::max(0, tokens - cls.window + 1);
    pages.emplace_back();
    for (int start = from / cls.page_tokens * cls.page_tokens; start < tokens; start += cls.page_tokens) {
      const auto it = parent->pages[c].find(start);
      if (it == parent->pages[c].end()) {
        expected = StatusCode::kUnsupported;
        break;
      }
      pages[c].push_back(it->second);
    }
    const uint8_t* strip = parent->strips[c] == nullptr ? nullptr : parent->strips[c]->data;
    sinks.emplace_back(strip, strip + cls.sink_bytes);
  }
  if (tokens > parent->length) expected = StatusCode::kInvalidArgument;
  const bool fit = fits(bytes, headroom_);
  const auto id = cache_->fork(parent_id, tokens);
  if (expected != StatusCode::kOk) {
    return id.status().code() == expected ? "" : say("fork at ", tokens, ": ", id.status().message());
  }
  if (!id.ok()) {
    ++refusals_;
    if (id.status().code() != StatusCode::kResourceExhausted) return "fork_at: " + id.status().message();
    return fit && exact_room_ ? "fork at a boundary refused although it fits: " + id.status().message() : "";
  }
  if (!fit) return "fork at a boundary succeeded although it cannot fit";
  return adopt_prefix(*id, tokens, pages, tokens == 0 ? std::vector<std::vector<uint8_t>>() : sinks);
}

std::string ReferenceModel::compare() {
  if (Status status = cache_->check(); !status.ok()) return "check: " + status.message();

  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  if (cache_->sequences() != ids) return "the sequences differ";
  for (const auto& [id, sequence] : sequences_) {
    if (cache_->length(id) != sequence.length) return say("length of ", id);
    for (size_t c = 0; c < config_.classes.size(); ++c) {
      const auto blocks = cache_->blocks(id, c);
      if (blocks.size() != sequence.pages[c].size()) return say("sequence ", id, " has ", blocks.size(), " blocks");
      size_t i = 0;
      for (const auto& [start, page] : sequence.pages[c]) {
        const BlockEntry& b = blocks[i++];
        const int tokens = std::clamp(sequence.length - start, 0, config_.classes[c].page_tokens);
        if (b.page != page->id || b.start != start || b.ref != *page->slot->ref || b.tokens != tokens ||
            b.sealed != sealed(*page) || b.shared != (page->holders.size() > 1) || b.cached != page->cached ||
            b.converting != page->converting) {
          return say("sequence ", id, " class ", c, " block at ", start, " differs");
        }
      }
      if (sequence.strips[c] != nullptr && cache_->strip(id, c) != sequence.strips[c]->data) return "a strip moved";
    }
  }

  std::set<const uint8_t*> addresses;
  for (const SlotPtr& slot : slots_) {
    if (slot->ref && cache_->slot(slot->cls, *slot->ref) != slot->data) return "a held slot moved or went stale";
    if (!addresses.insert(slot->data).second) return "two lifetimes of one slot at once";
    if (!stamped(*slot, slot->stamp)) return "a held slot was overwritten";
  }
  for (const auto& [cls, ref] : freed_) {
    if (cache_->slot(cls, ref) != nullptr) return "a freed reference still works";
  }
  for (const PageId id : gone_) {
    if (cache_->page(id)) return "a page that is gone still answers";
  }

  std::set<const Slot*> idle;  // mapped by a page that only the cache owns
  size_t held = 0;
  for (const auto& [id, page] : pages_) {
    held += page->cached;
    if (page->cached && page->holders.empty()) idle.insert(page->slot.get());
    const std::optional<PageInfo> info = cache_->page(id);
    if (!info || info->requests != page->holders.size() || cache_->requests(id) != page->holders.size() ||
        info->cached != page->cached || info->start != page->start || info->ref != *page->slot->ref ||
        info->holder != (page->holders.empty() ? 0 : *page->holders.begin())) {
      return say("the owners of page ", id, " differ");
    }
  }
  if (cache_->cached_pages() != held) return "cached pages";
  size_t cached_bytes = 0;
  size_t allocated = cache_->strip_bytes_live();
  for (size_t c = 0; c < config_.classes.size(); ++c) {
    for (size_t t = 0; t < kTiers; ++t) {
      const PoolStats stats = cache_->pool(c, static_cast<Tier>(t));
      size_t live = 0, cached = 0, draining = 0, converting = 0;
      for (const SlotPtr& slot : slots_) {
        if (slot->cls != c || !slot->ref || slot->ref->tier != static_cast<Tier>(t)) continue;
        converting += slot->destination;
        cached += idle.contains(slot.get());
        live += slot->destination == 0 && !idle.contains(slot.get());
        draining += slot->destination == 0 && slot->mapped == 0;
      }
      if (stats.slots_live != live || stats.slots_cached != cached || stats.slots_draining != draining ||
          stats.slots_converting != converting) {
        return say("pool ", c, "/", tier_name(static_cast<Tier>(t)), " counts differ");
      }
      if (stats.slots_free + live + cached + converting != stats.slots_total) {
        return "free + live + cached + converting is not total";
      }
      cached_bytes += cached * stats.slot_bytes;
      allocated += stats.slab_bytes;
    }
  }
  if (cache_->cached_bytes() != cached_bytes) return "cached bytes";
  if (cache_->allocated_bytes() != allocated || allocated > budget_) return "allocated bytes";
  if (exact_room_ && allocated != used_bytes()) return "memory without a holder";
  return "";
}

}  // namespace varve::cache::testing
