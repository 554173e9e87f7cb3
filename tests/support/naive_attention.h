#pragma once
// The attention every other one is checked against: one sequence, contiguous rows, one softmax in fp32 per query.

#include <vector>

#include "attention/layer_attention.h"
#include "model/model.h"

namespace varve::testing {

class NaiveAttention final : public attention::LayerAttention {
 public:
  /// capacity: most tokens of the sequence. Keys and values are rounded to fp16 as a dense cache stores them, unless
  /// `exact`. info must outlive this.
  NaiveAttention(const model::ModelInfo& info, int capacity, bool exact = false);

  /// Rows of the next step have positions past, past + 1, ...
  void begin_step(int past, int rows);

  void append(int layer, const float* k, const float* v, int thread, int threads) override;
  void partial(int layer, const float* q, int thread, int threads) override;
  void merge(int layer, float* out, int thread, int threads) override;

 private:
  /// Softmax over keys [begin, position] of one query head. q, out: [head_dim]. scores: scratch, [capacity].
  void attend(const model::LayerInfo& info, int kv_head, int position, const float* q, float* out, float* scores) const;

  const model::ModelInfo& info_;
  int capacity_, past_ = 0, rows_ = 0;
  bool exact_;
  std::vector<std::vector<float>> k_, v_;  ///< [layer][position][kv_heads][head_dim]
  std::vector<float> out_;                 ///< [rows][q_heads][head_dim] of the layer that runs now
};

}  // namespace varve::testing
