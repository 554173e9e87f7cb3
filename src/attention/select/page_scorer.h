#pragma once
// Exact scores of whole pages of one KV head: what the softmax would see of them, values unread.

#include "attention/items.h"

namespace varve::attention {

/// Up to kernels::kMaxGroup query rows against pages of any format. Scores are those of attention itself: the kernels'
/// q.k over the stored codes, the centre of K added back, scale and softcap applied.
///
/// A new page format joins here: `score_tile` is the only place that knows how a tile's keys are read. It must score the
/// very keys that attention reads; of a low-rank block these are anchor, directions and exact rows (lowrank.h).
class PageScorer {
 public:
  /// Uses the decode buffers of `scratch`, for kernels::kMaxGroup heads; whatever query was prepared there is gone.
  /// begin() comes first.
  PageScorer(const LayerStep& step, ThreadScratch& scratch) : step_(step), scratch_(scratch) {}

  /// The head that the following queries and pages belong to.
  void begin(int sequence, int kv_head);
  /// q: [head_dim], as the model gives it (unscaled, plain frame).
  void add_query(const float* q);
  int queries() const { return queries_; }

  /// Of pages [first, last) of the sequence's view, all full and sealed:
  /// log_sums[h * stride + p - first] = log(sum over the page's tokens of exp(score)). NaN where a score is.
  void score_pages(int first, int last, int stride, float* log_sums);

  /// Scores of the 64 tokens of the sealed tile at `position`, sinks by their exact rows: scores[h * kTileTokens + t].
  /// For whoever needs the scores themselves; score_pages is made of it.
  void score_tile(int position, float* scores);

 private:
  void prepare_codes();
  void add_centre(const TileView& tile, float* scores);

  const LayerStep& step_;
  ThreadScratch& scratch_;
  HeadView head_;
  int queries_ = 0;
  bool codes_ready_ = false;
  const uint8_t* centre_plane_ = nullptr;  ///< whose centre page_terms hold
};

}  // namespace varve::attention
