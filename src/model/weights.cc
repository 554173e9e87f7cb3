#include "model/weights.h"

#include <llama-model.h>

#include <cmath>
#include <string>

#include "model/hparams.h"

namespace varve::model {
namespace {

Status differ(const char* what, double libllama, double ours) {
  return internal_error(std::string("libllama reads ") + what + " as " + std::to_string(libllama) + ", varve as " +
                        std::to_string(ours));
}

Status same_numbers(const llama_hparams& theirs, const HParams& ours) {
  const struct {
    const char* what;
    double libllama, varve;
  } checks[] = {
      {"block_count", static_cast<double>(theirs.n_layer()), static_cast<double>(ours.layers)},
      {"embedding_length", static_cast<double>(theirs.n_embd), static_cast<double>(ours.embedding)},
      {"head_count", static_cast<double>(theirs.n_head()), static_cast<double>(ours.heads)},
      {"head_count_kv", static_cast<double>(theirs.n_head_kv()), static_cast<double>(ours.kv_heads)},
      {"key_length", static_cast<double>(theirs.n_embd_head_k()), static_cast<double>(ours.head_dim)},
      {"value_length", static_cast<double>(theirs.n_embd_head_v()), static_cast<double>(ours.head_dim)},
      {"rope.dimension_count", static_cast<double>(theirs.n_rot()), static_cast<double>(ours.rope.n_rot)},
      {"rope.freq_base", theirs.rope_freq_base_train, ours.rope.base},
      {"rms_epsilon", theirs.f_norm_rms_eps, ours.rms_eps},
      {"rope pair layout", theirs.rope_type == LLAMA_ROPE_TYPE_NEOX ? 1.0 : 0.0, ours.rope.neox ? 1.0 : 0.0},
      {"attention soft-cap", theirs.attn_soft_cap ? theirs.f_attn_logit_softcapping : 0.0, 0.0},
  };
  for (const auto& c : checks) {
    if (c.libllama != c.varve) return differ(c.what, c.libllama, c.varve);
  }
  for (int i = 0; i < ours.layers; ++i) {
    const bool sliding = theirs.is_swa(static_cast<uint32_t>(i));
    if (sliding != ours.sliding[static_cast<size_t>(i)]) {
      return differ(("sliding window of layer " + std::to_string(i)).c_str(), sliding, !sliding);
    }
  }
  return Status();
}

}  // namespace

Result<Weights> collect_weights(const llama_model& model, const HParams& hparams) {
  if (Status s = same_numbers(model.hparams, hparams); !s.ok()) return s;
  Weights w;
  w.token_embedding = model.tok_embd;
  w.output_norm = model.output_norm;
  w.output = model.output;
  w.output_bias = model.output_b;
  w.layers.reserve(model.layers.size());
  for (const llama_layer& l : model.layers) {
    LayerWeights layer;
    layer.attn_norm = l.attn_norm;
    layer.wq = l.wq;
    layer.wk = l.wk;
    layer.wv = l.wv;
    layer.wo = l.wo;
    layer.bq = l.wq_b;
    layer.bk = l.wk_b;
    layer.bv = l.wv_b;
    layer.bo = l.wo_b;
    layer.q_norm = l.attn_q_norm;
    layer.k_norm = l.attn_k_norm;
    layer.attn_post_norm = l.attn_post_norm;
    layer.ffn_norm = l.ffn_norm;
    layer.gate = l.ffn_gate;
    layer.up = l.ffn_up;
    layer.down = l.ffn_down;
    layer.gate_bias = l.ffn_gate_b;
    layer.up_bias = l.ffn_up_b;
    layer.down_bias = l.ffn_down_b;
    layer.ffn_post_norm = l.ffn_post_norm;
    layer.rope_factors = l.rope_freqs;
    w.layers.push_back(layer);
  }
  return w;
}

}  // namespace varve::model
