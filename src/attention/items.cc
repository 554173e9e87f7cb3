#include "attention/items.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/carve.h"

namespace varve::attention {
using format::kTileTokens;

bool ThreadScratch::reserve(std::span<const format::LayerGeometry> layers, bool prefill, int item_heads,
                            int max_rank) {
  size_t group = 0, head_dim = 0, terms = 0, item_rows = 0;
  for (const format::LayerGeometry& layer : layers) {
    const int rows = prefill_block_rows(layer.group()) * layer.group();
    group = std::max(group, static_cast<size_t>(layer.group()));
    head_dim = std::max(head_dim, static_cast<size_t>(layer.head.head_dim));
    item_rows = std::max(item_rows, static_cast<size_t>(rows));
    if (layer.head.rotary != nullptr) {
      terms = std::max(terms, static_cast<size_t>(kernels::curve_term_floats(layer.head.rotary->pairs())));
    }
  }
  new_layer();
  const size_t heads = std::max(group, static_cast<size_t>(item_heads));
  const size_t tile = kTileTokens * head_dim;
  const size_t segments = kDecodeCutTokens / kTileTokens + 1;
  bool ok = fit(&work_, [&](Carver& c) {
    q_plain = c.take<float>(heads * head_dim);
    q_rotated = c.take<float>(heads * head_dim);
    codes_plain = c.take<int16_t>(heads * head_dim);
    codes_rotated = c.take<int16_t>(heads * head_dim);
    step_plain = c.take<float>(heads);
    step_rotated = c.take<float>(heads);
    sums_plain = c.take<int32_t>(heads);
    sums_rotated = c.take<int32_t>(heads);
    acc_plain = c.take<float>(heads * head_dim);
    acc_rotated = c.take<float>(heads * head_dim);
    scores = c.take<float>(segments * heads * kTileTokens);
    offsets = c.take<float>(segments * heads);
    page_terms = c.take<float>(heads * terms);
    centre = c.take<float>(head_dim);
    tile_centre = c.take<float>(head_dim);
  });
  ok = ok && fit(&codec_, [&](Carver& c) {
         k_rows = c.take<float>(tile);
         v_rows = c.take<float>(tile);
       });
  ok = ok && (max_rank == 0 || blocks.reserve(max_rank, static_cast<int>(head_dim), static_cast<int>(heads)));
  if (!prefill) return ok;
  ok = ok && fit(&work_prefill_, [&](Carver& c) {
         q_block = c.take<float>(item_rows * head_dim);
         score_block = c.take<float>(item_rows * kKeyBlock);
       });
  return ok && fit(&codec_prefill_, [&](Carver& c) {
           k_transposed = c.take<float>(head_dim * kKeyBlock);
           v_block = c.take<float>(kKeyBlock * head_dim);
         });
}

HeadView LayerStep::head(int sequence, int kv_head) const {
  const SequenceState& state = sequences[static_cast<size_t>(sequence)];
  HeadView view;
  view.sequence = &state;
  view.layer = layer;
  view.kernels = kernels;
  view.ordinal = ordinal;
  view.kv_head = kv_head;
  view.has_tail = owns_strip(strip, ordinal);
  if (!view.has_tail) return view;
  const StripRows rows = strip_rows(strip, *layer, ordinal, kv_head, state.view.strip);
  view.tail = state.tail_in_strip ? rows.open : scratch_tail(state, *layer, kv_head, tail_scratch);
  view.sinks = rows.sinks;
  view.sink_tokens = strip->sink_tokens;
  return view;
}

void apply_softcap(const kernels::Kernels& kernels, float cap, int n, float* scores) {
  // tanh(x) = 1 - 2 / (exp(2x) + 1); beyond x = 20 it is 1 in fp32, and exp must not overflow.
  const float to_exponent = 2.0f / cap;
  for (int i = 0; i < n; ++i) {
    const float x = scores[i] * to_exponent;
    scores[i] = x > 40.0f ? 40.0f : x;
  }
  kernels.exp_sum(scores, n, 0.0f);
  for (int i = 0; i < n; ++i) scores[i] = cap - 2.0f * cap / (scores[i] + 1.0f);
}

void merge_unit(const LayerStep& step, const Unit& unit, float* out) {
  const int group = step.schedule->shape.group;
  const int head_dim = step.layer->head.head_dim;
  const int first_row = step.sequences[static_cast<size_t>(unit.sequence)].view.row_begin + unit.first_row;
  const size_t stride = static_cast<size_t>(unit.rows) * static_cast<size_t>(group);
  for (int r = 0; r < unit.rows; ++r) {
    for (int g = 0; g < group; ++g) {
      const size_t first = unit.slot + static_cast<size_t>(r * group + g);
      const size_t q_head = static_cast<size_t>(unit.kv_head * group + g);
      float* row = out + (static_cast<size_t>(first_row + r) * static_cast<size_t>(step.layer->q_heads) + q_head) *
                             static_cast<size_t>(head_dim);
      float max = -std::numeric_limits<float>::infinity();
      for (int c = 0; c < unit.cuts; ++c) {
        const float m = step.max[first + static_cast<size_t>(c) * stride];
        if (m > max) max = m;  // NaN never wins here; it reaches the output through l
      }
      float sum = 0;
      std::fill_n(row, head_dim, 0.0f);
      for (int c = 0; c < unit.cuts; ++c) {
        const size_t at = first + static_cast<size_t>(c) * stride;
        if (step.sum[at] == 0.0f) continue;  // empty cut: (-inf) - (-inf) must not be formed
        const float weight = std::exp(step.max[at] - max);
        const float* o = step.out + at * static_cast<size_t>(head_dim);
        sum += weight * step.sum[at];
        for (int d = 0; d < head_dim; ++d) row[d] += weight * o[d];
      }
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
      for (int d = 0; d < head_dim; ++d) row[d] *= inverse;
    }
  }
}

}  // namespace varve::attention
