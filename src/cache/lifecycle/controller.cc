#include "cache/lifecycle/controller.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/lifecycle/controller_impl.h"

namespace varve::cache {
namespace {

constexpr std::array<const char*, kRefusals> kRefusalNames = {"no room", "tier unused", "rejected", "no source"};

Status validate(const Cache& cache, const Controller::Options& options) {
  const size_t classes = cache.config().classes.size();
  const auto bad = [](const std::string& what) { return invalid_argument("lifecycle: " + what); };
  if (options.units_per_page.size() != classes) {
    return bad("units_per_page has " + std::to_string(options.units_per_page.size()) + " entries for " +
               std::to_string(classes) + " classes");
  }
  for (const int units : options.units_per_page) {
    if (units <= 0) return bad("units_per_page " + std::to_string(units) + " is not positive");
  }
  if (options.review_tokens <= 0) {
    return bad("review_tokens " + std::to_string(options.review_tokens) + " is not positive");
  }
  if (options.review_observations <= 0) {
    return bad("review_observations " + std::to_string(options.review_observations) + " is not positive");
  }
  if (!(options.score_decay >= 0 && options.score_decay < 1)) {
    return bad("score_decay " + std::to_string(options.score_decay) + " is not in 0 to 1, 1 excluded");
  }
  if (options.dwell_tokens < 0) return bad("dwell_tokens " + std::to_string(options.dwell_tokens) + " is negative");
  if (!options.layouts.empty() && options.layouts.size() != classes) {
    return bad("layouts has " + std::to_string(options.layouts.size()) + " entries for " + std::to_string(classes) +
               " classes");
  }
  return {};
}

Status unknown_sequence(const char* what, SequenceId sequence) {
  return invalid_argument(std::string("lifecycle: ") + what + ": sequence " + std::to_string(sequence) +
                          " is unknown or finished");
}

}  // namespace

const char* refusal_name(Refusal reason) {
  const size_t i = static_cast<size_t>(reason);
  return i < kRefusals ? kRefusalNames[i] : "unknown";
}

Controller::Impl::Impl(Cache* cache, const Policy* policy, const Options& options, TraceFn trace,
                       FidelitySource* source)
    : cache(cache), policy(policy), options(options), trace(std::move(trace)), refinements(source) {}

Controller::Impl::~Impl() {
  for (auto& [id, queue] : queues) {
    for (const Active& a : queue.active) {
      if (a.sourced) refinements.done(a.conversion.cls(), a.conversion.page());
    }
    drop_waiting(queue);
  }
}

Controller::Impl::Queue& Controller::Impl::queue_of(SequenceId id) {
  Queue& queue = queues[id];
  queue.scores.resize(cache->config().classes.size());
  queue.observations.resize(cache->config().classes.size());
  return queue;
}

Result<std::unique_ptr<Controller>> Controller::create(Cache* cache, const Policy* policy, const Options& options,
                                                       TraceFn trace, FidelitySource* source) {
  if (Status status = validate(*cache, options); !status.ok()) return status;
  return std::unique_ptr<Controller>(
      new Controller(std::make_unique<Impl>(cache, policy, options, std::move(trace), source)));
}

Controller::Controller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Controller::~Controller() = default;

Status Controller::observe(SequenceId sequence, size_t cls, std::span<const float> mass) {
  Impl& impl = *impl_;
  if (!impl.cache->contains(sequence)) return unknown_sequence("observe", sequence);
  if (cls >= impl.cache->config().classes.size()) {
    return invalid_argument("lifecycle: observe: class " + std::to_string(cls) + " of " +
                            std::to_string(impl.cache->config().classes.size()));
  }
  Impl::Queue& queue = impl.queue_of(sequence);
  Status status = queue.scores[cls].observe(impl.cache->blocks(sequence, cls), mass, impl.options.score_decay);
  if (status.ok()) queue.due |= ++queue.observations[cls] >= impl.options.review_observations;
  return status;
}

float Controller::score(SequenceId sequence, size_t cls, PageId page) const {
  const auto it = impl_->queues.find(sequence);
  return it == impl_->queues.end() || cls >= it->second.scores.size() ? 0.0f : it->second.scores[cls].score(page);
}

Status Controller::mark(SequenceId sequence, int begin, int end) {
  if (!impl_->cache->contains(sequence)) return unknown_sequence("mark", sequence);
  if (begin < 0 || begin >= end) {
    return invalid_argument("lifecycle: mark: positions " + std::to_string(begin) + " to " + std::to_string(end) +
                            " are no span");
  }
  Impl::Queue& queue = impl_->queue_of(sequence);
  queue.marks.add({begin, end});
  queue.due = true;
  return {};
}

std::vector<Span> Controller::marks(SequenceId sequence) const {
  const auto it = impl_->queues.find(sequence);
  return it == impl_->queues.end() ? std::vector<Span>{} : it->second.marks.spans();
}

void Controller::inherit(SequenceId from, SequenceId to) {
  Impl& impl = *impl_;
  const auto source = impl.queues.find(from);
  if (from == to || source == impl.queues.end() || !impl.cache->contains(to)) return;
  Impl::Queue& queue = impl.queue_of(to);
  for (size_t cls = 0; cls < queue.scores.size(); ++cls) {
    queue.scores[cls] = source->second.scores[cls];
    queue.scores[cls].keep_only(impl.cache->blocks(to, cls));
  }
  queue.marks = source->second.marks;
  queue.marks.cut(impl.cache->length(to));
  queue.due = true;
}

void Controller::settled(SequenceId sequence, int tokens) {
  Impl& impl = *impl_;
  if (!impl.cache->contains(sequence)) return;
  Impl::Queue& queue = impl.queue_of(sequence);
  const int length = impl.cache->length(sequence);
  const int review = length / impl.options.review_tokens;
  queue.earned = true;
  queue.earned_tokens += tokens;
  queue.clock += tokens;
  if (length < queue.length) {
    queue.marks.cut(length);
    queue.due = true;
  }
  queue.length = length;
  for (size_t cls = 0; cls < queue.scores.size(); ++cls) {
    // Pages that left the window must not speak for those that still hold them.
    if (impl.cache->config().classes[cls].window != 0) queue.scores[cls].keep_only(impl.cache->blocks(sequence, cls));
  }
  if (!queue.due && review == queue.reviewed) return;
  queue.reviewed = review;
  impl.review(sequence, queue, length);
}

void Controller::advance(int64_t step, int budget_tokens, const WorkFn& work) {
  Impl& impl = *impl_;
  impl.step = step;
  impl.settle_ownership();
  for (auto& [id, queue] : impl.queues) {
    if (!queue.earned) continue;  // publishing now would depend on whether its neighbours stepped
    std::deque<Impl::Active> part_filled;
    for (Impl::Active& a : queue.active) {
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
    impl.poll(id, queue);
    int credit = std::max(budget_tokens, std::exchange(queue.earned_tokens, 0));
    size_t next = 0;  // those before it wait for their source or for room
    bool full = false;
    while (credit > 0) {
      auto a =
          std::find_if(queue.active.begin(), queue.active.end(), [&](const Impl::Active& x) { return !impl.whole(x); });
      if (a == queue.active.end()) {
        if (next == queue.waiting.size()) break;
        const Impl::Waiting& w = queue.waiting[next];
        if (w.ask == Impl::Ask::kPending || (full && !is_stale(w.to))) {
          ++next;
          continue;
        }
        const bool demotion = is_stale(w.to);
        const Impl::Start started = impl.start_waiting(id, queue, next);
        if (started == Impl::Start::kNoRoom && demotion) break;
        if (started == Impl::Start::kNoRoom) full = true;
        if (started == Impl::Start::kNoRoom || started == Impl::Start::kPending) ++next;
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
      Impl::Active a = std::move(queue.active.front());
      queue.active.pop_front();
      a.why = kPressure;
      if (is_stale(a.conversion.to().tier)) {
        impl.complete(std::move(a), work);
      } else {
        impl.end(std::move(a), false);
      }
    }
  }

  if (gained() >= bytes) return gained();
  impl.refinements.relieve();  // nothing is in flight any more

  struct Candidate {
    int group;  ///< 0: recent, 1: anchors, 2: marked
    double value;
    int age;
    SequenceId sequence;
    Impl::Waiting w;
  };
  std::vector<Candidate> candidates;
  std::set<PageId> seen;
  for (const SequenceId id : impl.cache->sequences()) {
    const int length = impl.cache->length(id);
    for (size_t cls = 0; cls < impl.cache->config().classes.size(); ++cls) {
      const std::vector<BlockEntry> blocks = impl.cache->blocks(id, cls);
      const std::vector<PageFeatures> pages = impl.features(id, cls, blocks, length, true);
      std::vector<Wish> wishes(pages.size(), Wish{Tier::kRecent, ""});
      impl.policy->decide(pages, wishes);
      for (size_t i = 0; i < blocks.size(); ++i) {
        const BlockEntry& block = blocks[i];
        if (!block.sealed || block.converting || !seen.insert(block.page).second) continue;
        const PageFeatures& f = pages[i];
        const Tier from = block.ref.tier, to = wishes[i].tier;
        const size_t to_bytes = f.tier_bytes[static_cast<size_t>(to)];
        if (to_bytes == 0 || to_bytes >= f.tier_bytes[static_cast<size_t>(from)]) continue;
        const int group = f.marked ? 2 : from == Tier::kAnchor ? 1 : 0;
        candidates.push_back({group,
                              group == 0 ? 0 : wishes[i].value,
                              f.age_tokens,
                              id,
                              {cls, block.page, block.start, from, to, kPressure, f.score}});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.group != b.group) return a.group < b.group;
    if (a.value != b.value) return a.value < b.value;
    return a.age > b.age;
  });
  std::set<std::pair<size_t, Tier>> full;
  for (Candidate& c : candidates) {
    if (gained() >= bytes) break;
    if (full.contains({c.w.cls, c.w.to})) continue;
    std::deque<Impl::Active> active;
    const Impl::Start started = impl.start(c.sequence, c.w, &active);
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
  Impl::Queue& queue = it->second;
  impl.poll(sequence, queue);
  size_t next = 0;
  while (true) {
    while (!queue.active.empty()) {
      Impl::Active a = std::move(queue.active.front());
      queue.active.pop_front();
      impl.complete(std::move(a), work);
    }
    if (next == queue.waiting.size()) return;
    if (queue.waiting[next].ask == Impl::Ask::kPending) {
      ++next;
      continue;
    }
    const Impl::Start started = impl.start_waiting(sequence, queue, next);
    if (started == Impl::Start::kNoRoom || started == Impl::Start::kPending) ++next;
  }
}

void Controller::collect() { impl_->settle_ownership(); }

ControllerStats Controller::stats() const {
  ControllerStats stats = impl_->stats;
  stats.kept = impl_->refinements.kept_ever();
  stats.kept_now = impl_->refinements.kept_now();
  for (const auto& [id, queue] : impl_->queues) {
    stats.queue_length += queue.waiting.size();
    stats.in_flight += queue.active.size();
    for (const Impl::Waiting& w : queue.waiting) stats.pending += w.ask == Impl::Ask::kPending;
  }
  return stats;
}

}  // namespace varve::cache
