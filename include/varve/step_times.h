#pragma once
// Where the time of engine steps goes, for those who ask (Engine::time_steps). Nothing reads a clock otherwise.

#include <cstdint>
#include <vector>

namespace varve {

/// Seconds, summed over the steps timed. All but `threads` are wall time of the calling thread and disjoint: their sum
/// is wall_s less what no probe covers.
struct StepTimes {
  uint64_t steps = 0;
  double wall_s = 0;

  double reserve_s = 0;  ///< room for the new tokens
  double plan_s = 0;     ///< views, schedules and buffers of attention, positions
  double prepare_s = 0;  ///< finding or building the graph, copying its inputs
  double start_s = 0;    ///< from handing the graph to the threads to its first node, and from its last node back
  double weights_s = 0;  ///< matrix products
  double append_s = 0, partial_s = 0, merge_s = 0;  ///< the three attention nodes, barriers included
  double other_s = 0;                               ///< norms, RoPE, activations, sums, row copies
  double output_s = 0;                              ///< copying the logits out
  double scores_s = 0;                              ///< page mass to scores
  double settle_s = 0;                              ///< settling sessions, page headers, prefix cache
  double convert_s = 0;  ///< the lifecycle's part of the step: conversions and their planning

  /// What each thread was busy with inside append_s, partial_s, merge_s and convert_s; the rest of those it waited.
  struct Thread {
    double append_s = 0, partial_s = 0, merge_s = 0, convert_s = 0;
    double busy_s() const { return append_s + partial_s + merge_s + convert_s; }
  };
  std::vector<Thread> threads;

  double attention_s() const { return append_s + partial_s + merge_s; }
  double accounted_s() const {
    return reserve_s + plan_s + prepare_s + start_s + weights_s + attention_s() + other_s + output_s + scores_s +
           settle_s + convert_s;
  }
};

}  // namespace varve
