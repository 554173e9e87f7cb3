#pragma once
// One engine step's attention for one attention class: plan once, then run every layer over the same plan.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/layer_attention.h"
#include "attention/schedule.h"
#include "attention/select/memory.h"
#include "attention/select/options.h"
#include "format/layout.h"
#include "kernels/cpu/kernels.h"
#include "varve/status.h"

namespace varve::attention {

/// One page as a step reads (and, for the pages being filled, writes) it.
struct PageView {
  uint8_t* slot = nullptr;
  const format::SlotLayout* layout = nullptr;  ///< of the page's tier
  int start = 0;                               ///< position of its first token
};

/// One sequence's part of a step, in one attention class.
struct SequenceView {
  int row_begin = 0;  ///< first row of the batch that belongs to it
  int rows = 0;       ///< new tokens this step
  int past = 0;       ///< tokens already in the cache; the first new row has this position
  /// Pages that cover [pages.front().start, past + rows) without a gap; the ones at and after `past` are writable,
  /// in the recent tier's layout. Sliding-window classes may start late.
  std::vector<PageView> pages;
  /// format::StripLayout bytes; null when the class needs none. Sequences whose views hold the same slot at position 0
  /// have the same bytes in their sinks: any of them may be read.
  uint8_t* strip = nullptr;
  int full_rows = 0;             ///< with a router: the last so many rows attend to all pages
  RouteMemory* route = nullptr;  ///< of this sequence and class; null: every selection is a new one
};

/// Which rows and layers of a step have their page mass collected.
struct MassRequest {
  int rows = 0;          ///< the last so many new rows of each sequence; 0: nothing is collected, allocated or run
  int layer_stride = 1;  ///< layers (ordinals of the class) 0, s, 2s, ..., all their query heads
};

/// Everything that is constant for one attention class of one engine.
struct ClassGeometry {
  std::vector<format::LayerGeometry> layers;
  const format::SlotLayout* recent = nullptr;  ///< layout new tiles are sealed into
  const format::StripLayout* strip = nullptr;  ///< may be null when every layer is direct (f16) in `recent`
  format::EncodeOptions encode;
  RouteOptions route;
};

/// kInvalidArgument when the geometry contradicts itself or asks for what attention cannot do (a group above
/// kernels::kMaxGroup, a direct format with a centre, a rotary centre without a table, ...); says which layer and the
/// numbers.
Status check(const ClassGeometry& geometry);

/// Runs steps of one class. Not thread-safe except for the three LayerAttention calls of one step.
/// The result of a sequence does not depend on its batch neighbours or on the number of threads: the KV axis is cut at
/// fixed positions and partial results are merged in position order (docs/adr/0007-fixed-kv-cuts.md).
///
/// Where a layer owns a strip, the first sink_tokens positions are read from it for ever, whatever page 0 holds, and
/// they carry no weight in page 0's centre.
class ClassAttention final : public LayerAttention {
 public:
  /// threads: the most that will call in. `kernels` outlives the object. A geometry that check() refuses is reported by
  /// plan().
  ClassAttention(ClassGeometry geometry, const kernels::Kernels& kernels, int threads);
  ~ClassAttention() override;

  /// Cuts the step into work items and sizes every buffer. Slots and strips must stay valid until the last merge.
  /// kInvalidArgument when the views contradict the geometry (a gap between pages, rows beyond the last page, a page to
  /// be written that is not in the recent layout, a missing strip) or the request makes no sense; kResourceExhausted
  /// when memory is refused. After an error the three calls do nothing until a plan succeeds.
  Status plan(std::span<const SequenceView> sequences, const MassRequest& mass = {});

  void append(int layer, const float* k, const float* v, int thread, int threads) override;
  /// Nothing without a router (ClassGeometry::route).
  void route(int layer, const float* q, int thread, int threads) override;
  void partial(int layer, const float* q, int thread, int threads) override;
  void merge(int layer, float* out, int thread, int threads) override;
  /// The sealing half of merge(), for rows that come from elsewhere and attend to nothing: after append(), instead of
  /// the other two, with a barrier between.
  void seal(int layer, int thread, int threads);

  /// After the step's last merge: one float per page of the view of `sequence` (an index into plan's views), the mean
  /// over sampled (layer, query head, scored row) of the page's share of the softmax (equations 6 to 9 of the Minima-KV
  /// paper). Positions that a layer keeps in the strip's sinks do not count, the rest is what shares are taken of, so
  /// they sum to 1. The open tile and the step's own rows belong to the page of their position. All 0 when every
  /// sampled row was lost to NaN or sees sinks alone; empty when nothing was asked for. Valid until the next plan; not
  /// thread-safe.
  std::span<const float> page_mass(size_t sequence) const;
  /// Sampled (layer, query head, row) triples of `sequence` that page_mass leaves out for one of these two reasons.
  int mass_skipped(size_t sequence) const;

  /// Of the planned step: tiles of one KV head in one layer, summed over heads and layers. Sequences of a step whose
  /// views hold the same slots read those tiles once (share.h).
  ReadPlan stats() const;
  /// Of the planned step; all 0 without a router.
  RouteStats route_stats() const;

  /// Bytes of codec scratch held now (tails of chunks, decoded tiles); grows to the largest step seen.
  size_t scratch_bytes() const;
  /// Bytes of partial results and page mass held now: activations, not cache.
  size_t activation_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::attention
