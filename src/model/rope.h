#pragma once
// RoPE as a GGUF file describes it, resolved the way llama_context resolves it, in numbers ggml_rope_ext takes.

#include <vector>

namespace varve::model {

struct RopeParams {
  int n_rot = 0;      ///< dims that turn, even
  bool neox = false;  ///< pairs (i, i + n_rot/2) instead of (2i, 2i+1)
  int original_context = 0;
  float base = 10000.0f;
  float frequency_scale = 1.0f;   ///< 1 / linear or YaRN factor
  float ext_factor = 0.0f;        ///< YaRN: 1, else 0
  float attention_factor = 1.0f;  ///< magnitude handed to ggml, which multiplies YaRN's own on top
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
};

/// Sets ext_factor and attention_factor for YaRN (llama_context's constructor: ggml's own magnitude correction is
/// cancelled first, so that only mscale(1 / frequency_scale) and the file's factor remain).
void set_yarn(RopeParams& rope, float file_attention_factor);

/// Effective frequencies, radians per token, [n_rot / 2], as ggml's rope_yarn turns them, magnitude left out.
/// factors: [n_rot / 2] divisors (rope_freqs.weight), or empty.
std::vector<float> effective_theta(const RopeParams& rope, const std::vector<float>& factors);

}  // namespace varve::model
