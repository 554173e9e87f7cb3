#include "model/arch/blocks.h"

#include <algorithm>

#include "model/barrier_annotation.h"

namespace varve::model {
namespace {

const float* floats(const ggml_tensor* t) { return static_cast<const float*>(t->data); }

/// Runs one of the three attention nodes on this thread.
template <typename Fn>
void run_node(void* user, Fn fn) {
  const auto* node = static_cast<const AttentionNode*>(user);
  ordered_after(*node->attention);
  fn(**node->attention, node->layer);
  ordered_before(*node->attention);
}

void run_append(ggml_tensor* dst, int thread, int threads, void* user) {
  run_node(user, [&](attention::LayerAttention& attention, int layer) {
    attention.append(layer, floats(dst->src[0]), floats(dst->src[1]), thread, threads);
    attention.route(layer, floats(dst->src[2]), thread, threads);
  });
}

void run_partial(ggml_tensor* dst, int thread, int threads, void* user) {
  run_node(user, [&](attention::LayerAttention& attention, int layer) {
    attention.partial(layer, floats(dst->src[0]), thread, threads);
  });
}

void run_merge(ggml_tensor* dst, int thread, int threads, void* user) {
  run_node(user, [&](attention::LayerAttention& attention, int layer) {
    attention.merge(layer, static_cast<float*>(dst->data), thread, threads);
  });
}

/// Sources: w, x, and ggml's product of the rows that are not wide, when there are any.
void run_product(ggml_tensor* dst, int thread, int threads, void* user) {
  const auto* node = static_cast<const ProductNode*>(user);
  ordered_after(*node->attention);
  const ggml_tensor *w = dst->src[0], *narrow = dst->src[2];
  const int out = static_cast<int>(w->ne[1]);
  const int narrow_rows = narrow == nullptr ? 0 : static_cast<int>(narrow->ne[1]);
  const int wide = static_cast<int>(dst->ne[1]) - narrow_rows;
  float* y = static_cast<float*>(dst->data);
  node->product->run(w, floats(dst->src[1]), wide, y, thread, threads);
  const auto [begin, end] = WeightProduct::share(out, thread, threads);
  for (int r = 0; r < narrow_rows; ++r) {
    const float* from = floats(narrow) + int64_t{r} * out;
    std::copy(from + begin, from + end, y + int64_t{wide + r} * out + begin);
  }
  ordered_before(*node->attention);
}

}  // namespace

GraphBuilder::GraphBuilder(ggml_context* context, ggml_cgraph* graph, const HParams& hparams, const Weights& weights,
                           const StepSize& size, AttentionNode* nodes, ProductNode* product)
    : context_(context),
      graph_(graph),
      hparams_(hparams),
      weights_(weights),
      size_(size),
      wide_(size.wide_rows),
      nodes_(nodes),
      product_(product) {
  const auto input = [&](int n) {
    ggml_tensor* t = ggml_new_tensor_1d(context_, GGML_TYPE_I32, n);
    ggml_set_input(t);
    return t;
  };
  tokens = input(size.rows);
  positions = input(size.rows);
  if (size.outputs > 0) wanted_rows = input(size.outputs);
}

ggml_tensor* GraphBuilder::embed(float scale) {
  ggml_tensor* x = ggml_get_rows(context_, weights_.token_embedding, tokens);
  return scale == 1.0f ? x : ggml_scale(context_, x, scale);
}

ggml_tensor* GraphBuilder::norm(ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(context_, ggml_rms_norm(context_, x, hparams_.rms_eps), weight);
}

ggml_tensor* GraphBuilder::linear(ggml_tensor* x, ggml_tensor* w, ggml_tensor* bias) {
  ggml_tensor* y = product(x, w);
  return bias == nullptr ? y : ggml_add(context_, y, bias);
}

ggml_tensor* GraphBuilder::product(ggml_tensor* x, ggml_tensor* w) {
  if (wide_ == 0 || !product_->product->takes(w)) return ggml_mul_mat(context_, w, x);
  const int64_t rows = x->ne[1];
  ggml_tensor* operands[] = {w, x, nullptr};
  if (wide_ < rows) {
    ggml_tensor* narrow = ggml_view_2d(context_, x, x->ne[0], rows - wide_, x->nb[1], x->nb[1] * size_t(wide_));
    operands[2] = ggml_mul_mat(context_, w, narrow);
  }
  return ggml_custom_4d(context_, GGML_TYPE_F32, w->ne[1], rows, 1, 1, operands, wide_ < rows ? 3 : 2, run_product,
                        GGML_N_TASKS_MAX, product_);
}

ggml_tensor* GraphBuilder::add(ggml_tensor* a, ggml_tensor* b) { return ggml_add(context_, a, b); }

ggml_tensor* GraphBuilder::rope(int l, ggml_tensor* x) {
  const RopeParams& r = hparams_.sliding[static_cast<size_t>(l)] ? hparams_.rope_sliding : hparams_.rope;
  return ggml_rope_ext(context_, x, positions, layer(l).rope_factors, r.n_rot,
                       r.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, r.original_context, r.base,
                       r.frequency_scale, r.ext_factor, r.attention_factor, r.beta_fast, r.beta_slow);
}

ggml_tensor* GraphBuilder::attend(int l, ggml_tensor* x) {
  const LayerWeights& w = layer(l);
  const auto heads = [&](ggml_tensor* t, int n) { return ggml_reshape_3d(context_, t, hparams_.head_dim, n, size_.rows); };
  ggml_tensor* q = heads(linear(x, w.wq, w.bq), hparams_.heads);
  ggml_tensor* k = heads(linear(x, w.wk, w.bk), hparams_.kv_heads);
  ggml_tensor* v = heads(linear(x, w.wv, w.bv), hparams_.kv_heads);
  if (w.q_norm != nullptr) q = norm(q, w.q_norm);
  if (w.k_norm != nullptr) k = norm(k, w.k_norm);
  q = rope(l, q);
  k = rope(l, k);

  // The chain append -> partial -> merge is what orders the three nodes; the first two results carry no data.
  AttentionNode* node = &nodes_[l];
  const auto custom = [&](int64_t ne0, int64_t ne1, std::initializer_list<ggml_tensor*> args, ggml_custom_op_t fn) {
    std::vector<ggml_tensor*> sources(args);
    return ggml_custom_4d(context_, GGML_TYPE_F32, ne0, ne1, 1, 1, sources.data(), static_cast<int>(sources.size()), fn,
                          GGML_N_TASKS_MAX, node);
  };
  ggml_tensor* appended = custom(1, 1, {k, v, q}, run_append);
  ggml_tensor* partials = custom(1, 1, {q, appended}, run_partial);
  return custom(static_cast<int64_t>(hparams_.head_dim) * hparams_.heads, size_.rows, {partials}, run_merge);
}

ggml_tensor* GraphBuilder::output_rows(ggml_tensor* x) {
  wide_ = size_.wide_outputs;
  return ggml_get_rows(context_, x, wanted_rows);
}

ggml_tensor* GraphBuilder::swiglu(int l, ggml_tensor* x) {
  const LayerWeights& w = layer(l);
  ggml_tensor* up = linear(x, w.up, w.up_bias);
  return linear(ggml_swiglu_split(context_, linear(x, w.gate, w.gate_bias), up), w.down, w.down_bias);
}

ggml_tensor* GraphBuilder::geglu(int l, ggml_tensor* x) {
  const LayerWeights& w = layer(l);
  ggml_tensor* up = linear(x, w.up, w.up_bias);
  return linear(ggml_geglu_split(context_, linear(x, w.gate, w.gate_bias), up), w.down, w.down_bias);
}

void GraphBuilder::finish(ggml_tensor* x) {
  logits = linear(norm(x, weights_.output_norm), weights_.output, weights_.output_bias);
  if (const float cap = hparams_.logit_softcap; cap > 0.0f) {
    logits = ggml_scale(context_, ggml_tanh(context_, ggml_scale(context_, logits, 1.0f / cap)), cap);
  }
  ggml_set_output(logits);
  ggml_build_forward_expand(graph_, logits);
}

void GraphBuilder::finish_without_outputs(ggml_tensor* last) { ggml_build_forward_expand(graph_, last); }

std::vector<TensorSpec> common_tensors(const HParams& h) {
  const int64_t q = int64_t{h.heads} * h.head_dim, kv = int64_t{h.kv_heads} * h.head_dim;
  std::vector<TensorSpec> specs{
      {"token_embd.weight", h.embedding, h.vocabulary},
      {"output_norm.weight", h.embedding},
      {"output.weight", h.embedding, h.vocabulary, false},
  };
  for (int l = 0; l < h.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    specs.insert(specs.end(), {
                                  {block + "attn_norm.weight", h.embedding},
                                  {block + "attn_q.weight", h.embedding, q},
                                  {block + "attn_k.weight", h.embedding, kv},
                                  {block + "attn_v.weight", h.embedding, kv},
                                  {block + "attn_q.bias", q, 1, false},
                                  {block + "attn_k.bias", kv, 1, false},
                                  {block + "attn_v.bias", kv, 1, false},
                                  {block + "attn_output.weight", q, h.embedding},
                                  {block + "ffn_norm.weight", h.embedding},
                                  {block + "ffn_gate.weight", h.embedding, h.feed_forward},
                                  {block + "ffn_up.weight", h.embedding, h.feed_forward},
                                  {block + "ffn_down.weight", h.feed_forward, h.embedding},
                              });
  }
  return specs;
}

}  // namespace varve::model
