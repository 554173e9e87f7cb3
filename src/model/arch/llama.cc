// Llama 1 to 3 and what follows its layout (Mistral, SmolLM2, ...): pre-norm, RoPE on adjacent pairs, SwiGLU.

#include "model/arch/architecture.h"
#include "model/arch/blocks.h"

namespace varve::model {
namespace {

std::vector<TensorSpec> tensors(const HParams& h) {
  std::vector<TensorSpec> specs = common_tensors(h);
  specs.push_back({"rope_freqs.weight", h.rope.n_rot / 2, 1, false});
  for (int l = 0; l < h.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    specs.push_back({block + "attn_output.bias", h.embedding, 1, false});
    specs.push_back({block + "ffn_gate.bias", h.feed_forward, 1, false});
    specs.push_back({block + "ffn_up.bias", h.feed_forward, 1, false});
    specs.push_back({block + "ffn_down.bias", h.embedding, 1, false});
  }
  return specs;
}

}  // namespace

void build_pre_norm(GraphBuilder& g) {
  ggml_tensor* x = g.embed();
  for (int l = 0; l < g.hparams().layers; ++l) {
    const LayerWeights& w = g.layer(l);
    ggml_tensor* heads = g.attend(l, g.norm(x, w.attn_norm));
    if (g.is_last(l)) {
      if (g.outputs() == 0) return g.finish_without_outputs(heads);
      heads = g.output_rows(heads);
      x = g.output_rows(x);
    }
    x = g.add(g.linear(heads, w.wo, w.bo), x);
    x = g.add(g.swiglu(l, g.norm(x, w.ffn_norm)), x);
  }
  g.finish(x);
}

const Architecture kLlama{.name = "llama",
                          .neox = false,
                          .full_rotation = true,
                          .sliding = false,
                          .adjust = nullptr,
                          .tensors = tensors,
                          .build = build_pre_norm};

}  // namespace varve::model
