// Moving pages: from the queue through the fidelity source and the units to the publication.

#include <algorithm>
#include <string_view>
#include <utility>

#include "cache/lifecycle/controller_impl.h"

namespace varve::cache {

void Controller::Impl::refuse(SequenceId id, const Waiting& w, const char* how, Refusal reason) {
  ++stats.refused[static_cast<size_t>(reason)];
  if (!trace) return;
  trace({step, id, w.cls, w.page, w.start, w.from, w.to, refusal_name(reason), how, Outcome::kRefused, w.score,
         slot_bytes(w.cls, w.from), slot_bytes(w.cls, w.to), 0});
}

const char* Controller::Impl::plain_how(size_t cls, Tier from, Tier to) const {
  if (is_promotion(from, to)) return "lossy";
  if (options.layouts.empty()) return "convert";
  const auto& layouts = options.layouts[cls];
  return layouts[static_cast<size_t>(from)] == layouts[static_cast<size_t>(to)] ? "copy" : "convert";
}

bool Controller::Impl::has_room(const Waiting& w) const {
  if (is_stale(w.to)) return true;
  const PoolStats pool = cache->pool(w.cls, w.to);
  return pool.slots_free != 0 ||
         cache->budget_bytes() - cache->allocated_bytes() >= pool.slot_bytes + cache->headroom_bytes();
}

void Controller::Impl::ask(SequenceId id, Waiting& w) {
  switch (refinements.ask(id, w.cls, w.page, w.start)) {
    case FidelitySource::State::kReady: w.ask = Ask::kReady; return;
    case FidelitySource::State::kPending: w.ask = Ask::kPending; return;
    case FidelitySource::State::kNone: w.ask = Ask::kNone; return;
  }
}

Controller::Impl::Start Controller::Impl::start(SequenceId id, Waiting& w, std::deque<Active>* active) {
  const std::optional<PageInfo> page = cache->page(w.page);
  if (!page || page->requests == 0 || page->converting || page->ref.tier != w.from) return Start::kObsolete;
  Active a;
  a.how = plain_how(w.cls, w.from, w.to);
  if (!has_room(w)) {
    refuse(id, w, a.how, Refusal::kNoRoom);
    return Start::kNoRoom;
  }
  if (is_promotion(w.from, w.to)) {
    if (w.ask == Ask::kNot) ask(id, w);
    if (w.ask == Ask::kPending) return Start::kPending;
    if (w.ask == Ask::kReady) {
      const FidelitySource::Bytes bytes = refinements.bytes(w.cls, w.page);
      if (bytes.slot == nullptr) {
        refinements.done(w.cls, w.page);
        w.ask = Ask::kNone;
      } else {
        a.sourced = true;
        a.src = bytes.slot;
        a.src_tier = bytes.tier;
        a.how = bytes.how;
      }
    }
    if (!a.sourced && !options.allow_lossy) {
      refuse(id, w, a.how, Refusal::kNoSource);
      Queue& queue = queue_of(id);
      queue.moves[w.page] = {queue.clock, false};  // asked again when it has dwelt, not at each review
      return Start::kRefused;
    }
  }
  Result<Conversion> conversion = cache->retier(w.cls, w.page, w.to);
  if (!conversion.ok()) {
    const bool full = conversion.status().code() == StatusCode::kResourceExhausted;
    refuse(id, w, a.how, full ? Refusal::kNoRoom : Refusal::kRejected);
    return full ? Start::kNoRoom : Start::kObsolete;
  }
  ++counts(w.from, w.to).started;
  a.conversion = std::move(conversion).value();
  if (!a.sourced) {
    a.src = a.conversion.src();
    a.src_tier = w.from;
  }
  a.sequence = id;
  a.start = w.start;
  a.why = w.why;
  a.score = w.score;
  a.began = Clock::now();
  active->push_back(std::move(a));
  return Start::kStarted;
}

Controller::Impl::Start Controller::Impl::start_waiting(SequenceId id, Queue& queue, size_t i) {
  const Start started = start(id, queue.waiting[i], &queue.active);
  if (started == Start::kNoRoom || started == Start::kPending) return started;
  if (started == Start::kObsolete) withdraw(queue.waiting[i]);
  queued.erase(queue.waiting[i].page);
  queue.waiting.erase(queue.waiting.begin() + static_cast<ptrdiff_t>(i));
  return started;
}

void Controller::Impl::withdraw(const Waiting& w) {
  ++stats.withdrawn;
  if (w.asked()) refinements.done(w.cls, w.page);
}

void Controller::Impl::drop_waiting(Queue& queue) {
  for (const Waiting& w : queue.waiting) {
    withdraw(w);
    queued.erase(w.page);
  }
  queue.waiting.clear();
}

void Controller::Impl::poll(SequenceId id, Queue& queue) {
  std::erase_if(queue.waiting, [&](Waiting& w) {
    if (!w.asked()) return false;
    const std::optional<PageInfo> page = cache->page(w.page);
    if (!page || page->requests == 0 || page->ref.tier != w.from) {
      withdraw(w);
      queued.erase(w.page);
      return true;
    }
    if (w.ask == Ask::kPending) ask(id, w);
    return false;
  });
}

void Controller::Impl::hand_out(Active& a, int tokens, std::vector<WorkUnit>* out) const {
  const Conversion& c = a.conversion;
  a.spent_tokens += tokens;
  const int until = static_cast<int>(int64_t{a.spent_tokens} * units(c.cls()) / page_tokens(c.cls()));
  for (; a.spent_units < until; ++a.spent_units) {
    out->push_back({c.cls(), c.page(), a.src_tier, c.to().tier, a.start, a.spent_units, a.src, c.dst()});
  }
}

void Controller::Impl::end(Active a, bool publish) {
  const size_t cls = a.conversion.cls();
  const PageId page = a.conversion.page();
  const Tier from = a.conversion.from().tier, to = a.conversion.to().tier;
  bool published = publish && whole(a);
  if (published) {
    const std::optional<PageInfo> info = cache->page(page);
    if (!is_stale(from) && is_stale(to) && info && (info->requests != 0 || info->cached)) {
      refinements.demoting(cls, page, from, a.conversion.src(),
                           cache->config().classes[cls].slot_bytes[static_cast<size_t>(from)]);
    }
    published = a.conversion.publish();
  } else {
    a.conversion = {};  // abandons it
  }
  if (a.sourced) refinements.done(cls, page);
  if (published) {
    ++counts(from, to).published;
    stats.converted_tokens += static_cast<uint64_t>(page_tokens(cls));
    stats.published_pressure += std::string_view(a.why) == kPressure;
    if (is_promotion(from, to)) {
      ++stats.promotions[a.how];
      refinements.promoted(page, !a.sourced);
    }
    moved(a.sequence, cls, page, a.start, from, to);
  } else {
    ++counts(from, to).abandoned;
  }
  if (!trace) return;
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - a.began;
  trace({step, a.sequence, cls, page, a.start, from, to, a.why, a.how,
         published ? Outcome::kPublished : Outcome::kAbandoned, a.score, slot_bytes(cls, from), slot_bytes(cls, to),
         elapsed.count()});
}

void Controller::Impl::complete(Active a, const WorkFn& work) {
  std::vector<WorkUnit> out;
  hand_out(a, page_tokens(a.conversion.cls()) - a.spent_tokens, &out);
  if (!out.empty()) work(out);
  end(std::move(a));
}

void Controller::Impl::moved(SequenceId id, size_t cls, PageId page, int start, Tier from, Tier to) {
  const std::optional<PageInfo> info = cache->page(page);
  const bool alone = info && info->requests == 1;
  for (auto& [holder, queue] : queues) {
    if (alone ? holder != info->holder : !cache->contains(holder)) continue;
    if (!alone) {
      const std::vector<BlockEntry> blocks = cache->blocks(holder, cls);
      const bool holds = !blocks.empty() && std::any_of(blocks.begin(), blocks.end(), [&](const BlockEntry& b) {
        return b.start == start && b.page == page;
      });
      if (!holds) continue;
    }
    const auto last = queue.moves.find(page);
    if (holder == id && is_stale(to) && last != queue.moves.end() && last->second.promoted &&
        queue.clock - last->second.clock < options.dwell_tokens) {
      ++stats.flapped;
    }
    queue.moves[page] = {queue.clock, is_promotion(from, to)};
  }
}

void Controller::Impl::settle_ownership() {
  std::vector<Active> orphans;
  for (auto it = queues.begin(); it != queues.end();) {
    Queue& queue = it->second;
    const bool gone = !cache->contains(it->first);
    std::deque<Active> kept;
    for (Active& a : queue.active) {
      const std::optional<PageInfo> page = cache->page(a.conversion.page());
      if (!page || page->holder == 0) {
        end(std::move(a));
      } else if (gone) {
        a.sequence = page->holder;
        orphans.push_back(std::move(a));
      } else {
        kept.push_back(std::move(a));
      }
    }
    queue.active = std::move(kept);
    if (gone) {
      drop_waiting(queue);
      it = queues.erase(it);
    } else {
      ++it;
    }
  }
  for (Active& a : orphans) {
    const SequenceId holder = a.sequence;
    queue_of(holder).active.push_back(std::move(a));
  }
  refinements.collect(*cache);
}

size_t Controller::Impl::room() const {
  size_t bytes = cache->budget_bytes() - cache->allocated_bytes();
  for (size_t cls = 0; cls < cache->config().classes.size(); ++cls) {
    const PoolStats recent = cache->pool(cls, Tier::kRecent);
    bytes += recent.slots_free * recent.slot_bytes;
  }
  return bytes;
}

}  // namespace varve::cache
