#pragma once
// One engine step's attention for one attention class: plan once, then run every layer over the same plan.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/layer_attention.h"
#include "format/layout.h"
#include "kernels/cpu/kernels.h"

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
  const format::StripLayout* strip = nullptr;
  format::EncodeOptions encode;
};

/// Runs steps of one class. Not thread-safe except for the three LayerAttention calls of one step.
/// The result of a sequence does not depend on its batch neighbours or on the number of threads: the KV axis is cut at
/// fixed positions and partial results are merged in position order.
class ClassAttention final : public LayerAttention {
 public:
  /// threads: the most that will call in. max_rows: the most rows of one step (sizes the tail scratch on demand).
  ClassAttention(ClassGeometry geometry, const kernels::Kernels& kernels, int threads);
  ~ClassAttention() override;

  /// Cuts the step into work items. Views must stay valid until the last merge.
  void plan(std::span<const SequenceView> sequences);

  void append(int layer, const float* k, const float* v, int thread, int threads) override;
  void partial(int layer, const float* q, int thread, int threads) override;
  void merge(int layer, float* out, int thread, int threads) override;

  /// Bytes of codec scratch held now (tails of chunks, decoded tiles); grows to the largest step seen.
  size_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::attention
