#include "attention/select/router.h"

#include <algorithm>
#include <cstring>

#include "attention/select/memory.h"
#include "attention/select/page_scorer.h"

namespace varve::attention {
namespace {

/// Keys that one job scores, about.
constexpr int kJobTokens = 1024;

}  // namespace

Router::Router(const RouteOptions& options, std::span<const format::LayerGeometry> layers) : options_(options) {
  for (const format::LayerGeometry& layer : layers) kv_heads_.push_back(layer.kv_heads);
}

int Router::always_from(const SequenceState& sequence, int position) const {
  // Pages past the tail's start are not sealed; those at or past the window's first token are in it.
  const int limit = std::min(sequence.tail_start, std::max(0, position - options_.window_tokens + 1));
  return limit / sequence.view.pages.front().layout->page_tokens;
}

bool Router::routed(const SequenceState& sequence, int position) const {
  return sequence.view.pages.front().start == 0 && position + 1 >= options_.from_tokens &&
         always_from(sequence, position) - 1 > options_.pages;
}

void Router::begin(std::span<const SequenceState> sequences) {
  plans_.clear();
  fresh_.clear();
  for (const SequenceState& sequence : sequences) {
    fresh_.push_back(true);
    RouteMemory* memory = sequence.view.route;
    if (memory == nullptr || options_.reroute_steps == 1) continue;
    const int position = sequence.view.past;
    if (sequence.view.rows != 1 || sequence.view.full_rows > 0 || !routed(sequence, position)) {
      memory->position = -1;
      continue;
    }
    const bool fresh =
        memory->position < 0 || memory->position + 1 != position || memory->age + 1 >= options_.reroute_steps;
    fresh_.back() = fresh;
    memory->position = position;
    memory->age = fresh ? 0 : memory->age + 1;
    if (!fresh) continue;
    memory->always_from = always_from(sequence, position);
    memory->chosen.resize(kv_heads_.size());
    for (size_t i = 0; i < kv_heads_.size(); ++i) {
      memory->chosen[i].resize(static_cast<size_t>(kv_heads_[i]) * static_cast<size_t>(memory->always_from));
    }
  }
}

void Router::mark(std::span<const SequenceState> sequences, Schedule* schedule) {
  Plan& plan = plans_.emplace_back();
  if (schedule->shape.window > 0) return;
  for (size_t u = 0; u < schedule->units.size(); ++u) {
    Unit& unit = schedule->units[u];
    const SequenceState& sequence = sequences[static_cast<size_t>(unit.sequence)];
    const SequenceView& view = sequence.view;
    const int position = view.past + unit.first_row;
    const bool full = unit.first_row + unit.rows > view.rows - view.full_rows;
    if (full || !(unit.decode || options_.prefill) || !routed(sequence, position)) continue;
    RoutedUnit routed{.unit = static_cast<int>(u),
                      .always_from = always_from(sequence, position),
                      .sealed = sequence.tail_start / view.pages.front().layout->page_tokens,
                      .rows = std::clamp(kernels::kMaxGroup / schedule->shape.group, 1, unit.rows),
                      .fresh = fresh_[static_cast<size_t>(unit.sequence)],
                      .scores = plan.scores,
                      .order = plan.order};
    if (!routed.fresh) routed.always_from = view.route->always_from;
    unit.selection = static_cast<ptrdiff_t>(plan.flags);
    plan.flags += view.pages.size();
    const int index = static_cast<int>(plan.units.size());
    if (routed.fresh) {
      plan.scores += static_cast<size_t>(routed.rows * schedule->shape.group) * static_cast<size_t>(routed.sealed);
      plan.order += static_cast<size_t>(routed.candidates());
      const int pages = std::max(1, kJobTokens / view.pages.front().layout->page_tokens);
      for (int p = 0; p < routed.sealed; p += pages, ++routed.jobs) {
        plan.jobs.push_back({index, p, std::min(p + pages, routed.sealed)});
      }
    } else {
      plan.jobs.push_back({index, 0, 0});
      routed.jobs = 1;
    }
    plan.units.push_back(routed);
  }
}

bool Router::reserve() {
  size_t flags = 0, scores = 0, order = 0, units = 0;
  for (const Plan& plan : plans_) {
    flags = std::max(flags, plan.flags);
    scores = std::max(scores, plan.scores);
    order = std::max(order, plan.order);
    units += plan.units.size();
  }
  const auto fit = [](AlignedBuffer* buffer, size_t bytes) {
    if (bytes > buffer->size()) *buffer = AlignedBuffer(bytes);
    return bytes == 0 || buffer->data() != nullptr;
  };
  if (!fit(&selected_, flags) || !fit(&scores_, scores * sizeof(float)) || !fit(&order_, order * sizeof(RankedPage))) {
    return false;
  }
  if (units > pending_size_) {
    pending_ = std::make_unique<std::atomic<int>[]>(units);
    pending_size_ = units;
  }
  size_t i = 0;
  for (const Plan& plan : plans_) {
    for (const RoutedUnit& routed : plan.units) pending_[i++].store(routed.jobs, std::memory_order_relaxed);
  }
  begin_layer();
  return true;
}

void Router::run(const LayerStep& step, size_t schedule, ThreadScratch& scratch) {
  const Plan& plan = plans_[schedule];
  size_t first = 0;  // of this schedule's units among the pending ones
  for (size_t i = 0; i < schedule; ++i) first += plans_[i].units.size();
  const int jobs = static_cast<int>(plan.jobs.size());
  for (int j = next_job_.fetch_add(1, std::memory_order_relaxed); j < jobs;
       j = next_job_.fetch_add(1, std::memory_order_relaxed)) {
    const Job& job = plan.jobs[static_cast<size_t>(j)];
    const RoutedUnit& routed = plan.units[static_cast<size_t>(job.routed)];
    if (routed.fresh) score(step, routed, job, scratch);
    // Who finishes a unit's last job has seen the others' scores and selects.
    std::atomic<int>& pending = pending_[first + static_cast<size_t>(job.routed)];
    if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    select(step, routed);
    pending.store(routed.jobs, std::memory_order_relaxed);  // for the next layer, behind a barrier
  }
}

void Router::score(const LayerStep& step, const RoutedUnit& routed, const Job& job, ThreadScratch& scratch) {
  const Unit& unit = step.schedule->units[static_cast<size_t>(routed.unit)];
  const int group = step.schedule->shape.group;
  const auto head_dim = static_cast<size_t>(step.layer->head.head_dim);
  const int first_row = step.sequences[static_cast<size_t>(unit.sequence)].view.row_begin + unit.first_row;
  PageScorer scorer(step, scratch);
  scorer.begin(unit.sequence, unit.kv_head);
  for (int i = 1; i <= routed.rows; ++i) {
    const int row = first_row + i * unit.rows / routed.rows - 1;
    const auto head = static_cast<size_t>(row * step.layer->q_heads + unit.kv_head * group);
    for (int g = 0; g < group; ++g) scorer.add_query(step.q + (head + static_cast<size_t>(g)) * head_dim);
  }
  float* scores = reinterpret_cast<float*>(scores_.data()) + routed.scores;
  scorer.score_pages(job.first_page, job.last_page, routed.sealed, scores + job.first_page);
}

void Router::select(const LayerStep& step, const RoutedUnit& routed) {
  const Unit& unit = step.schedule->units[static_cast<size_t>(routed.unit)];
  const SequenceView& view = step.sequences[static_cast<size_t>(unit.sequence)].view;
  uint8_t* flags = selected_.data() + unit.selection;
  std::fill_n(flags, view.pages.size(), uint8_t{1});
  if (routed.fresh) {
    const PageScores scores{.log_sums = reinterpret_cast<const float*>(scores_.data()) + routed.scores,
                            .heads = routed.rows * step.schedule->shape.group,
                            .pages = routed.sealed};
    choose_pages(
        scores, 1, routed.always_from, options_.pages,
        {reinterpret_cast<RankedPage*>(order_.data()) + routed.order, static_cast<size_t>(routed.candidates())},
        flags + 1);
  }
  if (view.route == nullptr || view.route->position != view.past) return;
  std::vector<uint8_t>& chosen = view.route->chosen[static_cast<size_t>(step.ordinal)];
  uint8_t* kept = chosen.data() + static_cast<size_t>(unit.kv_head) * static_cast<size_t>(routed.always_from);
  if (routed.fresh) {
    std::memcpy(kept, flags, static_cast<size_t>(routed.always_from));
  } else {
    std::memcpy(flags, kept, static_cast<size_t>(routed.always_from));
  }
}

RouteStats Router::stats(std::span<const Schedule> schedules, std::span<const int> layers,
                         std::span<const SequenceState> sequences) const {
  RouteStats out;
  for (size_t s = 0; s < plans_.size(); ++s) {
    const Schedule& schedule = schedules[s];
    if (schedule.shape.window > 0) continue;
    const auto times = static_cast<uint64_t>(layers[s]);
    for (const Unit& unit : schedule.units) {
      const auto position = static_cast<uint64_t>(sequences[static_cast<size_t>(unit.sequence)].view.past) +
                            static_cast<uint64_t>(unit.first_row);
      const auto rows = static_cast<uint64_t>(unit.rows);
      const uint64_t tokens = times * (rows * (position + 1) + rows * (rows - 1) / 2);
      (unit.decode ? out.decode_tokens : out.prefill_tokens) += tokens;
      (unit.decode ? out.decode_attended : out.prefill_attended) += tokens;
    }
    for (const RoutedUnit& routed : plans_[s].units) {
      const Unit& unit = schedule.units[static_cast<size_t>(routed.unit)];
      const SequenceView& view = sequences[static_cast<size_t>(unit.sequence)].view;
      const uint64_t skipped = times * static_cast<uint64_t>(routed.candidates() - options_.pages);
      const auto page_tokens = static_cast<uint64_t>(view.pages.front().layout->page_tokens);
      (routed.fresh ? out.selections : out.reused) += times;
      if (routed.fresh) out.pages_scored += times * static_cast<uint64_t>(routed.sealed);
      out.pages_skipped += skipped;
      if (unit.decode) out.tiles_skipped += skipped * page_tokens / format::kTileTokens;
      (unit.decode ? out.decode_attended : out.prefill_attended) -=
          skipped * page_tokens * static_cast<uint64_t>(unit.rows);
    }
  }
  return out;
}

}  // namespace varve::attention
