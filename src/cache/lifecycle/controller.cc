#include "cache/lifecycle/controller.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace varve::cache {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kPressure = "pressure";
constexpr std::array<const char*, kRefusals> kRefusalNames = {"no room", "tier unused", "rejected"};

struct Waiting {
  size_t cls;
  PageId page;
  int start;
  Tier to;
  const char* why;
};

struct Active {
  Conversion conversion;
  int start = 0;
  const char* why = "";
  int spent_tokens = 0;  ///< of the page, handed out so far
  int spent_units = 0;
  Clock::time_point began;
};

struct Queue {
  int reviewed = -1;  ///< review number (length / review_tokens) of the last review
  int length = 0;     ///< settled tokens then
  bool earned = false;
  std::deque<Waiting> waiting;
  std::deque<Active> active;
};

}  // namespace

const char* refusal_name(Refusal reason) {
  const size_t i = static_cast<size_t>(reason);
  return i < kRefusals ? kRefusalNames[i] : "unknown";
}

struct Controller::Impl {
  Cache* cache;
  const Policy* policy;
  Options options;
  TraceFn trace;
  ControllerStats stats;
  int64_t step = 0;  ///< of the last advance, relieve or flush
  std::map<SequenceId, Queue> queues;
  std::set<PageId> queued;  ///< pages waiting in any queue

  int page_tokens(size_t cls) const { return cache->config().classes[cls].page_tokens; }
  int units(size_t cls) const { return options.units_per_page[cls]; }
  size_t slot_bytes(size_t cls, Tier tier) const { return cache->pool(cls, tier).slot_bytes; }
  TransitionCounts& counts(Tier from, Tier to) {
    return stats.transitions[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  bool whole(const Active& a) const { return a.spent_units == units(a.conversion.cls()); }

  PageFeatures features(size_t cls, const BlockEntry& block, int length, bool relieving) const {
    if (block.shared) length = cache->page(block.page)->shortest_length;
    PageFeatures f;
    f.cls = cls;
    f.start = block.start;
    f.tokens = page_tokens(cls);
    f.age_tokens = std::max(0, length - block.start - f.tokens);
    f.tier = block.ref.tier;
    f.sealed = block.sealed;
    f.shared = block.shared;
    for (size_t t = 0; t < kTiers; ++t) f.tier_bytes[t] = slot_bytes(cls, static_cast<Tier>(t));
    f.pressure = static_cast<double>(cache->allocated_bytes()) / static_cast<double>(cache->budget_bytes());
    f.relieving = relieving;
    return f;
  }

  void report(size_t cls, PageId page, int start, Tier from, Tier to, const char* why, Outcome outcome,
              double microseconds) {
    if (!trace) return;
    trace({step, cls, page, start, from, to, why, outcome, slot_bytes(cls, from), slot_bytes(cls, to), microseconds});
  }

  void refuse(const Waiting& w, Tier from, Refusal reason) {
    ++stats.refused[static_cast<size_t>(reason)];
    report(w.cls, w.page, w.start, from, w.to, refusal_name(reason), Outcome::kRefused, 0);
  }

  /// Starts w at the end of `active`; refusals are counted.
  enum class Start { kStarted, kObsolete, kNoRoom };
  Start start(const Waiting& w, std::deque<Active>* active) {
    const std::optional<PageInfo> page = cache->page(w.page);
    if (!page || page->requests == 0 || page->converting || page->ref.tier == w.to) return Start::kObsolete;
    Result<Conversion> conversion = cache->retier(w.cls, w.page, w.to);
    if (!conversion.ok()) {
      const bool full = conversion.status().code() == StatusCode::kResourceExhausted;
      refuse(w, page->ref.tier, full ? Refusal::kNoRoom : Refusal::kRejected);
      return full ? Start::kNoRoom : Start::kObsolete;
    }
    ++counts(page->ref.tier, w.to).started;
    active->push_back({std::move(conversion).value(), w.start, w.why, 0, 0, Clock::now()});
    return Start::kStarted;
  }

  /// Starts the queue's first page, or withdraws it; it stays when there is no room.
  Start start_next(Queue& queue) {
    const Start started = start(queue.waiting.front(), &queue.active);
    if (started == Start::kNoRoom) return started;
    if (started == Start::kObsolete) ++stats.withdrawn;
    queued.erase(queue.waiting.front().page);
    queue.waiting.pop_front();
    return started;
  }

  /// Hands out the next units of a worth `tokens`.
  void hand_out(Active& a, int tokens, std::vector<WorkUnit>* out) const {
    const Conversion& c = a.conversion;
    a.spent_tokens += tokens;
    const int until = static_cast<int>(int64_t{a.spent_tokens} * units(c.cls()) / page_tokens(c.cls()));
    for (; a.spent_units < until; ++a.spent_units) {
      out->push_back({c.cls(), c.page(), c.from().tier, c.to().tier, a.start, a.spent_units, c.src(), c.dst()});
    }
  }

  /// Ends a: published when its units are complete and the page still has an owner, else abandoned.
  void end(Active a) {
    const size_t cls = a.conversion.cls();
    const PageId page = a.conversion.page();
    const Tier from = a.conversion.from().tier, to = a.conversion.to().tier;
    const bool published = whole(a) && a.conversion.publish();
    a.conversion = {};
    if (published) {
      ++counts(from, to).published;
      stats.converted_tokens += static_cast<uint64_t>(page_tokens(cls));
      if (std::string_view(a.why) == kPressure) ++stats.published_pressure;
    } else {
      ++counts(from, to).abandoned;
    }
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - a.began;
    report(cls, page, a.start, from, to, a.why, published ? Outcome::kPublished : Outcome::kAbandoned, elapsed.count());
  }

  void complete(Active a, const WorkFn& work) {
    std::vector<WorkUnit> out;
    hand_out(a, page_tokens(a.conversion.cls()) - a.spent_tokens, &out);
    if (!out.empty()) work(out);
    end(std::move(a));
  }

  void drop_waiting(Queue& queue) {
    for (const Waiting& w : queue.waiting) queued.erase(w.page);
    queue.waiting.clear();
  }

  /// Conversions of pages that nobody holds any more are abandoned; those of finished sequences whose page lives on
  /// continue for the lowest holder.
  void settle_ownership() {
    std::vector<std::pair<SequenceId, Active>> moved;
    for (auto it = queues.begin(); it != queues.end();) {
      Queue& queue = it->second;
      const bool gone = !cache->contains(it->first);
      std::deque<Active> kept;
      for (Active& a : queue.active) {
        const std::optional<PageInfo> page = cache->page(a.conversion.page());
        if (!page || page->holder == 0) {
          end(std::move(a));
        } else if (gone) {
          moved.emplace_back(page->holder, std::move(a));
        } else {
          kept.push_back(std::move(a));
        }
      }
      queue.active = std::move(kept);
      if (gone) {
        stats.withdrawn += queue.waiting.size();
        drop_waiting(queue);
        it = queues.erase(it);
      } else {
        ++it;
      }
    }
    for (auto& [holder, a] : moved) queues[holder].active.push_back(std::move(a));
  }

  void review(SequenceId id, Queue& queue, int length) {
    const size_t before = queue.waiting.size();
    std::set<PageId> old;
    for (const Waiting& w : queue.waiting) old.insert(w.page);
    drop_waiting(queue);
    size_t kept = 0;
    for (size_t cls = 0; cls < cache->config().classes.size(); ++cls) {
      for (const BlockEntry& block : cache->blocks(id, cls)) {
        if (!block.sealed || block.converting || queued.contains(block.page)) continue;
        const Wish wish = policy->wanted(features(cls, block, length, false));
        if (wish.tier == block.ref.tier) continue;
        const Waiting w{cls, block.page, block.start, wish.tier, wish.why};
        if (slot_bytes(cls, wish.tier) == 0) {
          refuse(w, block.ref.tier, Refusal::kTierUnused);
          continue;
        }
        queue.waiting.push_back(w);
        queued.insert(block.page);
        kept += old.contains(block.page);
      }
    }
    std::stable_sort(queue.waiting.begin(), queue.waiting.end(),
                     [](const Waiting& a, const Waiting& b) { return a.start < b.start; });
    stats.withdrawn += before - kept;
  }

  /// Bytes that start, fork and reserve can use: the budget's rest and free recent slots.
  size_t room() const {
    size_t bytes = cache->budget_bytes() - cache->allocated_bytes();
    for (size_t cls = 0; cls < cache->config().classes.size(); ++cls) {
      const PoolStats recent = cache->pool(cls, Tier::kRecent);
      bytes += recent.slots_free * recent.slot_bytes;
    }
    return bytes;
  }
};

Result<std::unique_ptr<Controller>> Controller::create(Cache* cache, const Policy* policy, const Options& options,
                                                       TraceFn trace) {
  const size_t classes = cache->config().classes.size();
  if (options.units_per_page.size() != classes) {
    return invalid_argument("lifecycle: units_per_page has " + std::to_string(options.units_per_page.size()) +
                            " entries for " + std::to_string(classes) + " classes");
  }
  for (const int units : options.units_per_page) {
    if (units <= 0) return invalid_argument("lifecycle: units_per_page " + std::to_string(units) + " is not positive");
  }
  if (options.review_tokens <= 0) {
    return invalid_argument("lifecycle: review_tokens " + std::to_string(options.review_tokens) + " is not positive");
  }
  auto impl = std::make_unique<Impl>();
  impl->cache = cache;
  impl->policy = policy;
  impl->options = options;
  impl->trace = std::move(trace);
  return std::unique_ptr<Controller>(new Controller(std::move(impl)));
}

Controller::Controller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Controller::~Controller() = default;

void Controller::settled(SequenceId sequence) {
  if (!impl_->cache->contains(sequence)) return;
  Queue& queue = impl_->queues[sequence];
  const int length = impl_->cache->length(sequence);
  queue.earned = true;
  const int review = length / impl_->options.review_tokens;
  const bool due = review != queue.reviewed || length < queue.length;
  queue.length = length;
  if (!due) return;
  queue.reviewed = review;
  impl_->review(sequence, queue, length);
}

void Controller::advance(int64_t step, int budget_tokens, const WorkFn& work) {
  Impl& impl = *impl_;
  impl.step = step;
  impl.settle_ownership();
  for (auto& [id, queue] : impl.queues) {
    if (!queue.earned) continue;  // publishing now would depend on whether its neighbours stepped
    std::deque<Active> part_filled;
    for (Active& a : queue.active) {
      if (impl.whole(a)) {
        impl.end(std::move(a));
      } else {
        part_filled.push_back(std::move(a));
      }
    }
    queue.active = std::move(part_filled);
  }
  std::vector<WorkUnit> out;
  for (auto& [id, queue] : impl.queues) {
    if (!std::exchange(queue.earned, false)) continue;
    int credit = budget_tokens;
    while (credit > 0) {
      auto a = std::find_if(queue.active.begin(), queue.active.end(), [&](const Active& x) { return !impl.whole(x); });
      if (a == queue.active.end()) {
        if (queue.waiting.empty()) break;
        if (impl.start_next(queue) == Impl::Start::kNoRoom) break;
        continue;
      }
      const int tokens = std::min(credit, impl.page_tokens(a->conversion.cls()) - a->spent_tokens);
      credit -= tokens;
      impl.hand_out(*a, tokens, &out);
    }
  }
  if (!out.empty()) work(out);
}

size_t Controller::relieve(int64_t step, size_t bytes, const WorkFn& work) {
  Impl& impl = *impl_;
  impl.step = step;
  const size_t before = impl.room();
  const auto gained = [&] {
    const size_t now = impl.room();
    return now > before ? now - before : 0;
  };
  impl.settle_ownership();
  for (auto& [id, queue] : impl.queues) {
    while (!queue.active.empty() && gained() < bytes) {
      Active a = std::move(queue.active.front());
      queue.active.pop_front();
      a.why = kPressure;
      impl.complete(std::move(a), work);
    }
  }

  struct Candidate {
    int age;
    Waiting w;
    Tier from;
  };
  std::vector<Candidate> candidates;
  std::set<PageId> seen;
  for (const SequenceId id : impl.cache->sequences()) {
    const int length = impl.cache->length(id);
    for (size_t cls = 0; cls < impl.cache->config().classes.size(); ++cls) {
      for (const BlockEntry& block : impl.cache->blocks(id, cls)) {
        if (!block.sealed || block.converting || !seen.insert(block.page).second) continue;
        const PageFeatures f = impl.features(cls, block, length, true);
        const Tier to = impl.policy->wanted(f).tier;
        const size_t to_bytes = f.tier_bytes[static_cast<size_t>(to)];
        if (to_bytes == 0 || to_bytes >= f.tier_bytes[static_cast<size_t>(f.tier)]) continue;
        candidates.push_back({f.age_tokens, {cls, block.page, block.start, to, kPressure}, f.tier});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.age > b.age; });
  std::set<std::pair<size_t, Tier>> full;
  for (const Candidate& c : candidates) {
    if (gained() >= bytes) break;
    if (full.contains({c.w.cls, c.w.to})) continue;
    std::deque<Active> active;
    const Impl::Start started = impl.start(c.w, &active);
    if (started == Impl::Start::kNoRoom) full.insert({c.w.cls, c.w.to});
    if (started == Impl::Start::kStarted) impl.complete(std::move(active.front()), work);
  }
  return gained();
}

void Controller::flush(int64_t step, SequenceId sequence, const WorkFn& work) {
  Impl& impl = *impl_;
  impl.step = step;
  impl.settle_ownership();
  const auto it = impl.queues.find(sequence);
  if (it == impl.queues.end()) return;
  Queue& queue = it->second;
  do {
    while (!queue.active.empty()) {
      Active a = std::move(queue.active.front());
      queue.active.pop_front();
      impl.complete(std::move(a), work);
    }
  } while (!queue.waiting.empty() && impl.start_next(queue) != Impl::Start::kNoRoom);
}

ControllerStats Controller::stats() const {
  ControllerStats stats = impl_->stats;
  for (const auto& [id, queue] : impl_->queues) {
    stats.queue_length += queue.waiting.size();
    stats.in_flight += queue.active.size();
  }
  return stats;
}

}  // namespace varve::cache
