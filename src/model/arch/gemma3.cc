// Gemma 3 (text): scaled embeddings, norms before and after both halves of the block, head norms on q and k, GEGLU,
// five sliding-window layers for each full one, each kind with its own RoPE base.

#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/blocks.h"

namespace varve::model {
namespace {

/// The 27B (62 layers) scales by the embedding's share of a head instead of the head's size.
void adjust(HParams& h) {
  if (h.layers == 62) h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.embedding / h.heads));
}

std::vector<TensorSpec> tensors(const HParams& h) {
  std::vector<TensorSpec> specs = common_tensors(h);
  for (int l = 0; l < h.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    specs.push_back({block + "attn_q_norm.weight", h.head_dim});
    specs.push_back({block + "attn_k_norm.weight", h.head_dim});
    specs.push_back({block + "post_attention_norm.weight", h.embedding});
    specs.push_back({block + "post_ffw_norm.weight", h.embedding});
  }
  return specs;
}

void build(GraphBuilder& g) {
  ggml_tensor* x = g.embed(std::sqrt(static_cast<float>(g.hparams().embedding)));
  for (int l = 0; l < g.hparams().layers; ++l) {
    const LayerWeights& w = g.layer(l);
    ggml_tensor* heads = g.attend(l, g.norm(x, w.attn_norm));
    if (g.is_last(l)) {
      if (g.outputs() == 0) return g.finish_without_outputs(heads);
      heads = g.output_rows(heads);
      x = g.output_rows(x);
    }
    x = g.add(g.norm(g.linear(heads, w.wo), w.attn_post_norm), x);
    x = g.add(g.norm(g.geglu(l, g.norm(x, w.ffn_norm)), w.ffn_post_norm), x);
  }
  g.finish(x);
}

}  // namespace

const Architecture kGemma3{.name = "gemma3",
                           .neox = true,
                           .full_rotation = false,
                           .sliding = true,
                           .adjust = adjust,
                           .tensors = tensors,
                           .build = build};

}  // namespace varve::model
