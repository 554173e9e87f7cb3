#include "attention/select/page_scorer.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace varve::attention {

using format::Centre;
using format::Frame;
using format::kTileTokens;

void PageScorer::begin(int sequence, int kv_head) {
  head_ = step_.head(sequence, kv_head);
  queries_ = 0;
  codes_ready_ = false;
  centre_plane_ = nullptr;
  scratch_.new_layer();
}

void PageScorer::add_query(const float* q) {
  const int head_dim = step_.layer->head.head_dim;
  float* to = scratch_.q_plain + static_cast<size_t>(queries_++) * static_cast<size_t>(head_dim);
  for (int d = 0; d < head_dim; ++d) to[d] = q[d] * step_.layer->scale;
}

void PageScorer::prepare_codes() {
  if (codes_ready_) return;
  codes_ready_ = true;
  const kernels::Kernels& kernels = *step_.kernels;
  const int head_dim = step_.layer->head.head_dim;
  std::memcpy(scratch_.q_rotated, scratch_.q_plain,
              static_cast<size_t>(queries_) * static_cast<size_t>(head_dim) * sizeof(float));
  kernels.rotate(scratch_.q_rotated, queries_, head_dim, step_.layer->head.rotation->signs());
  kernels.quantize_query(scratch_.q_plain, queries_, head_dim, scratch_.codes_plain, scratch_.step_plain,
                         scratch_.sums_plain);
  kernels.quantize_query(scratch_.q_rotated, queries_, head_dim, scratch_.codes_rotated, scratch_.step_rotated,
                         scratch_.sums_rotated);
}

void PageScorer::score_tile(int position, float* scores) {
  const kernels::Kernels& kernels = *step_.kernels;
  const int head_dim = step_.layer->head.head_dim;
  const TileView tile = head_.tile(position);
  if (tile.low_rank()) {
    scratch_.blocks.score(kernels, tile.block, tile.tile, step_.turn, queries_, 1, scratch_.q_plain, scores);
  } else if (tile.plane == nullptr) {
    const kernels::QueryGroup query{queries_, head_dim, scratch_.q_plain};
    kernels.f16_scores(tile.rows.k, kTileTokens, query, kTileTokens, scores);
  } else {
    prepare_codes();
    const bool rotated = format::k_codec(tile.codec.format->k).frame == Frame::kRotated;
    const kernels::QueryGroup query{queries_,
                                    head_dim,
                                    rotated ? scratch_.q_rotated : scratch_.q_plain,
                                    rotated ? scratch_.codes_rotated : scratch_.codes_plain,
                                    rotated ? scratch_.step_rotated : scratch_.step_plain,
                                    rotated ? scratch_.sums_rotated : scratch_.sums_plain};
    const uint8_t* codes = tile.plane + tile.codec.plane->k_tile(tile.tile);
    kernels.k_scores[static_cast<size_t>(tile.codec.format->k)](codes, query, scores);
    if (tile.codec.format->centre != Centre::kNone) add_centre(tile, scores);
  }
  if (const int sinks = head_.sinks_in_tile(position); sinks > 0) {
    const kernels::QueryGroup query{queries_, head_dim, scratch_.q_plain};
    kernels.f16_scores(head_.sinks.k, sinks, query, kTileTokens, scores);
  }
  if (step_.layer->softcap > 0) apply_softcap(kernels, step_.layer->softcap, queries_ * kTileTokens, scores);
}

void PageScorer::add_centre(const TileView& tile, float* scores) {
  const kernels::Kernels& kernels = *step_.kernels;
  const int head_dim = step_.layer->head.head_dim;
  const bool rotary = tile.codec.format->centre == Centre::kRotary;
  const int terms = rotary ? step_.curve->terms() : 1;
  if (centre_plane_ != tile.plane) {
    centre_plane_ = tile.plane;
    if (rotary) {
      read_centre(tile.codec, tile.plane, scratch_.centre);
      for (int h = 0; h < queries_; ++h) {
        step_.curve->page_terms(kernels, scratch_.q_plain + static_cast<size_t>(h * head_dim), scratch_.centre,
                                scratch_.page_terms + static_cast<size_t>(h * terms));
      }
    } else {
      const kernels::QueryGroup query{queries_, head_dim, scratch_.q_plain};
      kernels.f16_scores(centre_row(tile.plane), 1, query, 1, scratch_.page_terms);
    }
  }
  if (rotary) {
    step_.curve->add_to_scores(kernels, queries_, scratch_.page_terms, tile.tile, scores);
    return;
  }
  for (int h = 0; h < queries_; ++h) {
    float* row = scores + static_cast<size_t>(h * kTileTokens);
    for (int t = 0; t < kTileTokens; ++t) row[t] += scratch_.page_terms[h];
  }
}

void PageScorer::score_pages(int first, int last, int stride, float* log_sums) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  const kernels::Kernels& kernels = *step_.kernels;
  const std::vector<PageView>& pages = head_.sequence->view.pages;
  for (int p = first; p < last; ++p) {
    const PageView& page = pages[static_cast<size_t>(p)];
    float max[kernels::kMaxGroup], sum[kernels::kMaxGroup];
    std::fill_n(max, queries_, kMinusInfinity);
    std::fill_n(sum, queries_, 0.0f);
    for (int t = 0; t < page.layout->page_tokens; t += kTileTokens) {
      score_tile(page.start + t, scratch_.scores);
      for (int h = 0; h < queries_; ++h) {
        float* row = scratch_.scores + static_cast<size_t>(h * kTileTokens);
        const float tile_max = kernels.max(row, kTileTokens);
        if (tile_max > max[h]) {
          sum[h] *= std::exp(max[h] - tile_max);
          max[h] = tile_max;
        }
        // With no maximum every score is -inf or NaN; against 0 the sum is then 0 or NaN, as it should be.
        sum[h] += kernels.exp_sum(row, kTileTokens, max[h] == kMinusInfinity ? 0.0f : max[h]);
      }
    }
    for (int h = 0; h < queries_; ++h) {
      float& to = log_sums[static_cast<size_t>(h) * static_cast<size_t>(stride) + static_cast<size_t>(p - first)];
      to = sum[h] == 0.0f ? kMinusInfinity : (max[h] == kMinusInfinity ? 0.0f : max[h]) + std::log(sum[h]);
    }
  }
}

}  // namespace varve::attention
