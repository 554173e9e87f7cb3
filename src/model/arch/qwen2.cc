// Qwen2 and Qwen2.5: Llama's block with q, k, v biases and RoPE on half-split pairs.

#include "model/arch/architecture.h"
#include "model/arch/blocks.h"

namespace varve::model {
namespace {

std::vector<TensorSpec> tensors(const HParams& h) {
  std::vector<TensorSpec> specs = common_tensors(h);
  specs.push_back({"output.bias", h.vocabulary, 1, false});
  return specs;
}

}  // namespace

const Architecture kQwen2{.name = "qwen2",
                          .neox = true,
                          .full_rotation = true,
                          .sliding = false,
                          .adjust = nullptr,
                          .tensors = tensors,
                          .build = build_pre_norm};

}  // namespace varve::model
