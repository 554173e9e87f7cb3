#pragma once
// The weights of a loaded model as plain ggml tensors, in the buffers libllama put them in (mapped or repacked).
// weights.cc is the only file that looks inside llama_model.

#include <vector>

#include "varve/status.h"

struct ggml_tensor;
struct llama_model;

namespace varve::model {

/// Null where the model has no such tensor. Matrices are [in, out] in ggml's order (ne[0] = in).
struct LayerWeights {
  ggml_tensor *attn_norm = nullptr, *wq = nullptr, *wk = nullptr, *wv = nullptr, *wo = nullptr;
  ggml_tensor *bq = nullptr, *bk = nullptr, *bv = nullptr, *bo = nullptr;
  ggml_tensor *q_norm = nullptr, *k_norm = nullptr, *attn_post_norm = nullptr;
  ggml_tensor *ffn_norm = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  ggml_tensor *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr, *ffn_post_norm = nullptr;
  ggml_tensor *rope_factors = nullptr;  ///< [n_rot / 2] divisors of the frequencies
};

struct Weights {
  ggml_tensor *token_embedding = nullptr, *output_norm = nullptr, *output = nullptr, *output_bias = nullptr;
  std::vector<LayerWeights> layers;
};

struct HParams;

/// Collects the tensors and checks that libllama understood the same numbers as read_hparams() did.
Result<Weights> collect_weights(const llama_model &model, const HParams &hparams);

}  // namespace varve::model
