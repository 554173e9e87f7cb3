#include "poison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace varve::attention::test {

void check_poison(const kernels::Kernels& kernels, ClassSpec spec, const std::vector<int>& tiers, const char* name,
                  bool key, int poisoned, int past, int rows) {
  spec.q_heads = 4;
  spec.kv_heads = 2;
  const int window = spec.window;
  const TestClass cls(spec);
  TestSequence sequence(cls, past + rows, 3, 1.0f);
  // KV head 1 alone: query heads 0 and 1 must not notice.
  std::vector<float>& side = key ? sequence.rows(0).k : sequence.rows(0).v;
  side[static_cast<size_t>(poisoned) * 2 * 64 + 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  sequence.fill(past, tiers);
  ClassAttention attention(cls.geometry(), kernels, 1);
  const StepOutput output = run_step(attention, {{&sequence, past, rows}}, 1);
  for (int r = 0; r < rows; ++r) {
    const bool attended = poisoned <= past + r && (window == 0 || poisoned > past + r - window);
    for (int h = 0; h < 4; ++h) {
      const float* out = output[0].data() + (r * 4 + h) * 64;
      const bool nan = std::any_of(out, out + 64, [](float x) { return std::isnan(x); });
      const bool clean = std::all_of(out, out + 64, [](float x) { return std::isfinite(x); });
      EXPECT_TRUE(attended && h >= 2 ? nan : clean)
          << name << (key ? " K" : " V") << " of position " << poisoned << " window " << window << " past " << past
          << " row " << r << " of " << rows << " head " << h;
    }
  }
}

}  // namespace varve::attention::test
