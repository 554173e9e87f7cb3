#include "engine/dense_rows.h"

#include <algorithm>
#include <limits>

namespace varve::engine {

void DenseRows::read(int layer, int begin, int end, std::vector<float>& k, std::vector<float>& v) const {
  const size_t c = static_cast<size_t>(plan_.class_of_layer[static_cast<size_t>(layer)]);
  const ClassPlan& cls = plan_.classes[c];
  const format::SlotLayout& layout = cls.slot(cache::Tier::kRecent);
  const auto geometry =
      std::find_if(cls.layers.begin(), cls.layers.end(), [&](const auto& g) { return g.layer == layer; });
  const int ordinal = static_cast<int>(geometry - cls.layers.begin());
  const int kv_heads = geometry->kv_heads;
  const auto head_dim = static_cast<size_t>(geometry->head.head_dim);
  const format::PlaneLayout& plane = layout.layers[static_cast<size_t>(ordinal)].plane;

  const size_t floats = static_cast<size_t>(end - begin) * static_cast<size_t>(kv_heads) * head_dim;
  k.assign(floats, std::numeric_limits<float>::quiet_NaN());
  v.assign(floats, 0.0f);
  for (const cache::BlockEntry& b : cache_.blocks(sequence_, c)) {
    const uint8_t* slot = cache_.slot(c, b.ref);
    for (int p = std::max(begin, b.start); p < std::min(end, b.start + b.tokens); ++p) {
      const int tile = (p - b.start) / format::kTileTokens;
      const size_t in_tile = static_cast<size_t>((p - b.start) % format::kTileTokens) * head_dim;
      for (int h = 0; h < kv_heads; ++h) {
        const uint8_t* base = slot + layout.plane(ordinal, h);
        const size_t to = static_cast<size_t>((p - begin) * kv_heads + h) * head_dim;
        kernels_.f16_to_f32(reinterpret_cast<const uint16_t*>(base + plane.k_tile(tile)) + in_tile, k.data() + to,
                            head_dim);
        kernels_.f16_to_f32(reinterpret_cast<const uint16_t*>(base + plane.v_tile(tile)) + in_tile, v.data() + to,
                            head_dim);
      }
    }
  }
}

}  // namespace varve::engine
