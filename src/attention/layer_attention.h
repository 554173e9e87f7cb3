#pragma once
// The seam between a model graph and the cache: the three nodes every attention layer runs, in this order, each by all
// threads of the graph with a barrier after each: append and route, partial, merge. All tensors are fp32, contiguous, in model layer numbering.

namespace varve::attention {

class LayerAttention {
 public:
  virtual ~LayerAttention() = default;

  /// k, v: [rows][kv_heads][head_dim], keys after RoPE. Stores the step's new rows.
  virtual void append(int layer, const float* k, const float* v, int thread, int threads) = 0;
  /// q as in partial(). Chooses the pages that the step's rows attend to, where there is a choice. In one node with
  /// append(), after it on every thread but with no barrier between: it reads what earlier steps have sealed.
  virtual void route(int /*layer*/, const float* /*q*/, int /*thread*/, int /*threads*/) {}
  /// q: [rows][q_heads][head_dim] after RoPE, unscaled. Attends over old pages and the new rows.
  virtual void partial(int layer, const float* q, int thread, int threads) = 0;
  /// out: [rows][q_heads][head_dim]. Merges partial results; seals tiles that the step filled.
  virtual void merge(int layer, float* out, int thread, int threads) = 0;
};

}  // namespace varve::attention
