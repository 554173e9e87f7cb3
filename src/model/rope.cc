#include "model/rope.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>

namespace varve::model {

void set_yarn(RopeParams& rope, float file_attention_factor) {
  const float factor = 1.0f / rope.frequency_scale;
  const float mscale = factor <= 1.0f ? 1.0f : 0.1f * std::log(factor) + 1.0f;
  rope.ext_factor = 1.0f;
  rope.attention_factor = file_attention_factor * mscale / (1.0f + 0.1f * std::log(factor));
}

std::vector<float> effective_theta(const RopeParams& rope, const std::vector<float>& factors) {
  float ramp_begin_end[2] = {0, 0};
  if (rope.ext_factor != 0.0f) {
    ggml_rope_yarn_corr_dims(rope.n_rot, rope.original_context, rope.base, rope.beta_fast, rope.beta_slow,
                             ramp_begin_end);
  }
  std::vector<float> theta(static_cast<size_t>(rope.n_rot) / 2);
  for (size_t pair = 0; pair < theta.size(); ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / rope.n_rot;
    const double extrapolated =
        std::pow(static_cast<double>(rope.base), exponent) / (factors.empty() ? 1.0 : factors[pair]);
    const double span = std::max(0.001f, ramp_begin_end[1] - ramp_begin_end[0]);
    const double ramp = 1.0 - std::clamp((static_cast<double>(pair) - ramp_begin_end[0]) / span, 0.0, 1.0);
    const double mix = ramp * rope.ext_factor;
    theta[pair] = static_cast<float>(extrapolated * (rope.frequency_scale * (1.0 - mix) + mix));
  }
  return theta;
}

}  // namespace varve::model
