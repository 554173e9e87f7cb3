#pragma once
// Page mass: how much of the softmax of sampled layers and rows falls on each page (equations 6 to 9 of the Minima-KV
// paper). Items leave the local mass of every tile under the maximum of their cut; here the cuts of a row are brought
// under one maximum, tiles are added up to pages, and rows to sequences.

#include <span>
#include <vector>

#include "attention/items.h"
#include "base/memory.h"

namespace varve::attention {

class PageMass {
 public:
  /// Sizes and clears everything for a step. Nothing is allocated when `request` asks for nothing. False when memory
  /// was refused.
  bool plan(const MassRequest& request, std::span<const SequenceState> sequences, std::span<const Schedule> schedules);

  bool samples(int ordinal) const { return request_.rows > 0 && ordinal % request_.layer_stride == 0; }
  /// Schedule::mass_floats of the largest schedule, for the layer that runs now.
  float* tiles() { return reinterpret_cast<float*>(tiles_.data()); }

  /// After partial(): adds the scored rows of a unit of schedules[schedule]. Units touch nothing in common.
  void add_unit(const LayerStep& step, size_t schedule, size_t unit);

  /// One float per page of the sequence's view; they sum to 1, or are 0 when nothing could be scored. Empty when
  /// nothing was asked for. The sums run in the order of units, so no thread leaves a trace.
  std::span<const float> shares(size_t sequence);
  /// (layer, query head, row) triples of the sequence that were left out: lost to NaN, or with no weight outside sinks.
  int skipped(size_t sequence) const;

  size_t bytes() const { return tiles_.size() + sums_.size() + shares_.size(); }

 private:
  /// What one unit has gathered over the layers so far.
  struct UnitSums {
    int sequence = 0;
    size_t first = 0;  ///< its pages start here in sums_
    size_t pages = 0;  ///< 0: it has no scored rows
    int skipped = 0;
  };

  MassRequest request_;
  AlignedBuffer tiles_, sums_, shares_;
  std::vector<std::vector<UnitSums>> units_;  ///< [schedule][unit]
  std::vector<size_t> first_share_;           ///< [sequence + 1]: pages of earlier sequences
};

}  // namespace varve::attention
