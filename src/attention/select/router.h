#pragma once
// Chooses, for every routed unit of a step, the pages that it attends to. The first page (sinks), the pages of the
// recent window and everything that is not sealed are always attended to; of the others, the candidates, the best
// `pages` are, by exact scores of the unit's queries over all sealed pages (page_scorer.h, choose.h).
//
// A decode unit asks with all its query heads, a prefill unit with those of a few of its rows, evenly spaced, the last
// one included. A selection depends on the unit, its sequence's pages and its memory alone: never on threads or
// neighbours.

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "attention/items.h"
#include "attention/select/choose.h"
#include "attention/select/options.h"
#include "base/memory.h"

namespace varve::attention {

class Router {
 public:
  Router(const RouteOptions& options, std::span<const format::LayerGeometry> layers);

  /// Starts the plan of a step: decides which sequences go on with the selection that they remember.
  void begin(std::span<const SequenceState> sequences);
  /// Marks the units of a class's next schedule that are routed (Unit::selection) and lists their jobs. Units of
  /// sliding windows are never routed.
  void mark(std::span<const SequenceState> sequences, Schedule* schedule);
  /// Ends the plan: sizes every buffer. False when memory was refused.
  bool reserve();

  /// Makes one layer's selections: called by every thread, with step.q set, after begin_layer() and with a barrier
  /// before anybody reads selected(). schedule: in the order of mark().
  void run(const LayerStep& step, size_t schedule, ThreadScratch& scratch);
  /// Called by one thread while no other is in run(): the next layer's jobs start from the first.
  void begin_layer() { next_job_.store(0, std::memory_order_relaxed); }
  /// By Unit::selection: one flag for each page of the sequence's view.
  const uint8_t* selected() const { return selected_.data(); }

  /// Of the planned step: layers[i] layers have schedules[i].
  RouteStats stats(std::span<const Schedule> schedules, std::span<const int> layers,
                   std::span<const SequenceState> sequences) const;
  size_t bytes() const { return selected_.size() + scores_.size() + order_.size(); }

 private:
  struct RoutedUnit {
    int unit = 0;
    int always_from = 0;  ///< pages [1, always_from) are the candidates
    int sealed = 0;       ///< pages [0, sealed) are scored
    int rows = 0;         ///< that ask
    bool fresh = true;    ///< else taken from the sequence's memory
    int jobs = 0;
    size_t scores = 0;  ///< [rows x group][sealed] in scores_
    size_t order = 0;   ///< [candidates] in order_
    int candidates() const { return always_from - 1; }
  };
  struct Job {
    int routed = 0;  ///< index of its unit among the routed ones
    int first_page = 0, last_page = 0;
  };
  struct Plan {
    std::vector<RoutedUnit> units;
    std::vector<Job> jobs;
    size_t flags = 0, scores = 0, order = 0;
  };

  int always_from(const SequenceState& sequence, int position) const;
  /// Whether a row at `position` has more candidates than a selection names, and enough context.
  bool routed(const SequenceState& sequence, int position) const;
  void score(const LayerStep& step, const RoutedUnit& routed, const Job& job, ThreadScratch& scratch);
  void select(const LayerStep& step, const RoutedUnit& routed);

  const RouteOptions options_;
  std::vector<int> kv_heads_;  ///< by layer ordinal
  std::vector<bool> fresh_;    ///< by sequence of the step
  std::vector<Plan> plans_;    ///< by schedule
  AlignedBuffer selected_, scores_, order_;
  std::unique_ptr<std::atomic<int>[]> pending_;  ///< by routed unit: jobs not done in this layer
  size_t pending_size_ = 0;
  std::atomic<int> next_job_ = 0;
};

}  // namespace varve::attention
