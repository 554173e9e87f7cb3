#pragma once
// Building blocks of the architectures' graphs. Activations are [features, rows] in ggml's order, i.e. row-major
// [rows][features], fp32.

#include <ggml.h>

#include <vector>

#include "attention/layer_attention.h"
#include "model/arch/architecture.h"
#include "model/hparams.h"
#include "model/weight_product.h"
#include "model/weights.h"

namespace varve::model {

/// What a custom attention node needs when it runs. `attention` is read at run time, so that one graph serves any
/// LayerAttention.
struct AttentionNode {
  attention::LayerAttention* const* attention = nullptr;
  int layer = 0;
};

/// What a weight product of ours needs when it runs; its operands are the node's sources.
struct ProductNode {
  WeightProduct* product = nullptr;
  attention::LayerAttention* const* attention = nullptr;  ///< orders threads, see barrier_annotation.h
};

/// What a step's graph depends on.
struct StepSize {
  int rows = 0, outputs = 0;
  int wide_rows = 0, wide_outputs = 0;
  bool operator==(const StepSize&) const = default;
};

class GraphBuilder {
 public:
  /// nodes: one per layer, must outlive the graph, as must `product`. size.wide_rows and size.wide_outputs: see
  /// StepInput. outputs: rows whose logits are wanted; 0 ends the graph after the
  /// last layer's attention.
  GraphBuilder(ggml_context* context, ggml_cgraph* graph, const HParams& hparams, const Weights& weights, const StepSize& size,
               AttentionNode* nodes, ProductNode* product);

  const HParams& hparams() const { return hparams_; }
  const LayerWeights& layer(int l) const { return weights_.layers[static_cast<size_t>(l)]; }
  int outputs() const { return size_.outputs; }
  bool is_last(int l) const { return l + 1 == hparams_.layers; }

  /// Rows of the embedding table, times `scale` unless it is 1.
  ggml_tensor* embed(float scale = 1.0f);
  ggml_tensor* norm(ggml_tensor* x, ggml_tensor* weight);
  /// w * x + bias; bias may be null. Wide rows by WeightProduct where it takes w, the others by ggml.
  ggml_tensor* linear(ggml_tensor* x, ggml_tensor* w, ggml_tensor* bias = nullptr);
  ggml_tensor* add(ggml_tensor* a, ggml_tensor* b);
  /// q, k, v projections of x, head norms where the layer has them, RoPE, then append, partial, merge.
  /// Returns [q_heads * head_dim, rows], before the output projection.
  ggml_tensor* attend(int l, ggml_tensor* x);
  /// The rows whose logits are wanted.
  ggml_tensor* output_rows(ggml_tensor* x);
  /// down(activation(gate(x)) * up(x)).
  ggml_tensor* swiglu(int l, ggml_tensor* x);
  ggml_tensor* geglu(int l, ggml_tensor* x);
  /// Final norm and output projection, soft-capped where the model says so; marks the result as the graph's output.
  void finish(ggml_tensor* x);
  /// Ends a graph without outputs.
  void finish_without_outputs(ggml_tensor* last);

  ggml_tensor* tokens = nullptr;       ///< i32 [rows]
  ggml_tensor* positions = nullptr;    ///< i32 [rows]
  ggml_tensor* wanted_rows = nullptr;  ///< i32 [outputs]; null when there are none
  ggml_tensor* logits = nullptr;       ///< [vocabulary, outputs]; null when there are none

 private:
  ggml_tensor* rope(int l, ggml_tensor* x);
  ggml_tensor* product(ggml_tensor* x, ggml_tensor* w);

  ggml_context* context_;
  ggml_cgraph* graph_;
  const HParams& hparams_;
  const Weights& weights_;
  StepSize size_;
  int wide_;  ///< leading rows of the activations that are wide, here
  AttentionNode* nodes_;
  ProductNode* product_;
};

/// Tensors every architecture here has: embedding, norms, projections, gated FFN (feed-forward and q, k, v biases
/// optional as in libllama).
std::vector<TensorSpec> common_tensors(const HParams& h);

/// The graph of Llama, Qwen2 and Qwen3, which differ in tensors only: x += wo(attention(norm x)), x += swiglu(norm x).
void build_pre_norm(GraphBuilder& g);

}  // namespace varve::model
