#pragma once
// One engine step's attention for one attention class: plan once, then run every layer over the same plan.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/layer_attention.h"
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
  uint8_t* strip = nullptr;  ///< format::StripLayout bytes; null when the class needs none
};

/// Everything that is constant for one attention class of one engine.
struct ClassGeometry {
  std::vector<format::LayerGeometry> layers;
  const format::SlotLayout* recent = nullptr;  ///< layout new tiles are sealed into
  const format::StripLayout* strip = nullptr;  ///< may be null when every layer is direct (f16) in `recent`
  format::EncodeOptions encode;
};

/// kInvalidArgument when the geometry contradicts itself or asks for what attention cannot do (a group above
/// kMaxGroup, a direct format with a centre, a rotary centre without a table, ...); says which layer and the numbers.
Status check(const ClassGeometry& geometry);

/// Most query heads per KV head.
inline constexpr int kMaxGroup = 16;

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
  /// be written that is not in the recent layout, a missing strip); kResourceExhausted when memory is refused. After an
  /// error the three calls do nothing until a plan succeeds.
  Status plan(std::span<const SequenceView> sequences);

  void append(int layer, const float* k, const float* v, int thread, int threads) override;
  void partial(int layer, const float* q, int thread, int threads) override;
  void merge(int layer, float* out, int thread, int threads) override;

  /// Bytes of codec scratch held now (tails of chunks, decoded tiles); grows to the largest step seen.
  size_t scratch_bytes() const;
  /// Bytes of partial results held now: activations, not cache.
  size_t activation_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::attention
