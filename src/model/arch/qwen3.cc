// Qwen3 (dense): Qwen2's block without biases, with a norm over each head of q and k before RoPE.

#include "model/arch/architecture.h"
#include "model/arch/blocks.h"

namespace varve::model {
namespace {

std::vector<TensorSpec> tensors(const HParams& h) {
  std::vector<TensorSpec> specs = common_tensors(h);
  for (int l = 0; l < h.layers; ++l) {
    const std::string block = "blk." + std::to_string(l) + ".";
    specs.push_back({block + "attn_q_norm.weight", h.head_dim});
    specs.push_back({block + "attn_k_norm.weight", h.head_dim});
  }
  return specs;
}

}  // namespace

const Architecture kQwen3{.name = "qwen3",
                          .neox = true,
                          .full_rotation = true,
                          .sliding = false,
                          .adjust = nullptr,
                          .tensors = tensors,
                          .build = build_pre_norm};

}  // namespace varve::model
