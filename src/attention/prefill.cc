// Prefill: a block of rows, times the query heads of a group, against many positions of one KV head. Tiles are decoded
// once per item to plain fp32 rows and multiplied as matrices; an online softmax keeps only kKeyBlock scores per row.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/items.h"

namespace varve::attention {
namespace {

using format::Centre;
using format::kTileTokens;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// to[d * stride + t] = from[t * head_dim + d] for one tile, in 4 x 4 blocks (head_dim is a multiple of 4).
void transpose_tile(const float* from, int head_dim, int stride, float* to) {
  using Four __attribute__((vector_size(16))) = float;
  const auto load = [&](int t, int d) {
    Four x;
    std::memcpy(&x, from + static_cast<size_t>(t) * static_cast<size_t>(head_dim) + d, sizeof x);
    return x;
  };
  const auto store = [&](int d, int t, Four x) {
    std::memcpy(to + static_cast<size_t>(d) * static_cast<size_t>(stride) + t, &x, sizeof x);
  };
  for (int t = 0; t < kTileTokens; t += 4) {
    for (int d = 0; d < head_dim; d += 4) {
      const Four a = load(t, d), b = load(t + 1, d), c = load(t + 2, d), e = load(t + 3, d);
      const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Four ce_low = __builtin_shufflevector(c, e, 0, 4, 1, 5),
                 ce_high = __builtin_shufflevector(c, e, 2, 6, 3, 7);
      store(d, t, __builtin_shufflevector(ab_low, ce_low, 0, 1, 4, 5));
      store(d + 1, t, __builtin_shufflevector(ab_low, ce_low, 2, 3, 6, 7));
      store(d + 2, t, __builtin_shufflevector(ab_high, ce_high, 0, 1, 4, 5));
      store(d + 3, t, __builtin_shufflevector(ab_high, ce_high, 2, 3, 6, 7));
    }
  }
}

class PrefillItem {
 public:
  PrefillItem(const LayerStep& step, const Item& item, ThreadScratch& scratch)
      : step_(step),
        unit_(step.schedule->units[static_cast<size_t>(item.unit)]),
        scratch_(scratch),
        kernels_(*step.kernels),
        head_(step.head(unit_.sequence, unit_.kv_head)),
        group_(step.schedule->shape.group),
        head_dim_(step.layer->head.head_dim),
        first_position_(head_.sequence->view.past + unit_.first_row),
        cut_begin_((unit_.first_cut + item.cut) * unit_.cut_tokens) {
    const size_t slot = unit_.slot + static_cast<size_t>(item.cut * unit_.rows * group_);
    max_ = step.max + slot;
    sum_ = step.sum + slot;
    out_ = step.out + slot * static_cast<size_t>(head_dim_);
    if (step.tile_mass != nullptr && unit_.scored > 0) {
      mass_ = step.tile_mass;
      cut_tiles_ = unit_.tiles_of_cut(item.cut);
    }
  }

  void run() {
    const int rows = unit_.rows * group_;
    gather_query();
    std::fill_n(max_, rows, kMinusInfinity);
    std::fill_n(sum_, rows, 0.0f);
    std::fill_n(out_, static_cast<size_t>(rows) * static_cast<size_t>(head_dim_), 0.0f);
    const int begin = std::max(cut_begin_, first_key(first_position_, step_.layer->window)) / kTileTokens * kTileTokens;
    const int end = std::min(cut_begin_ + unit_.cut_tokens, first_position_ + unit_.rows);
    clear_mass();
    for (int key = begin; key < end;) {
      const int n = step_.attends(unit_, key) ? block_tokens(key, end) : 0;
      if (n > 0) attend(key, n);
      key += n > 0 ? n : kTileTokens;
    }
    finish_mass();
  }

 private:
  size_t at(int row) const { return static_cast<size_t>(row) * static_cast<size_t>(head_dim_); }

  /// Keys of the block at `key`, which the unit attends to: the next tile may belong to a page that it does not.
  int block_tokens(int key, int end) const {
    const int n = std::min(kKeyBlock, end - key);
    return n <= kTileTokens || step_.attends(unit_, key + kTileTokens) ? n : kTileTokens;
  }

  /// [rows][group][head_dim], scale folded in.
  void gather_query() {
    const int first_row = head_.sequence->view.row_begin + unit_.first_row;
    float* to = scratch_.q_block;
    for (int r = 0; r < unit_.rows; ++r) {
      const float* q = step_.q + at((first_row + r) * step_.layer->q_heads + unit_.kv_head * group_);
      for (int i = 0; i < group_ * head_dim_; ++i) *to++ = q[i] * step_.layer->scale;
    }
  }

  /// Keys [key, key + n) into k_transposed and v_block. Tokens past n inside the last tile are zero.
  void load_keys(int key, int n) {
    for (int t = 0; t < n; t += kTileTokens) {
      float* keys = scratch_.k_transposed + t;
      float* values = scratch_.v_block + at(t);
      const TileView tile = head_.tile(key + t);
      if (tile.low_rank()) {
        load_low_rank_tile(key + t, tile, keys, values);
      } else {
        load_tile(key + t, tile, std::min(kTileTokens, n - t), values);
        transpose_tile(scratch_.k_rows, head_dim_, kKeyBlock, keys);
      }
    }
  }

  /// Makes the keys where they go: a block's basis gives them transposed.
  void load_low_rank_tile(int position, const TileView& tile, float* keys, float* v_rows) {
    scratch_.blocks.keys(kernels_, tile.block, tile.tile, step_.turn, kKeyBlock, keys);
    scratch_.blocks.values(kernels_, tile.block, tile.tile, v_rows);
    const int sinks = head_.sinks_in_tile(position);
    load_half(head_.sinks, sinks, v_rows);
    kernels_.transpose(sinks, head_dim_, scratch_.k_rows, head_dim_, keys, kKeyBlock);
  }

  void load_tile(int position, const TileView& tile, int n, float* v_rows) {
    if (tile.plane == nullptr) {
      load_half(tile.rows, n, v_rows);
      std::fill_n(scratch_.k_rows + at(n), at(kTileTokens - n), 0.0f);
      std::fill_n(v_rows + at(n), at(kTileTokens - n), 0.0f);
    } else {
      if (tile.codec.format->centre != Centre::kNone) {
        read_centre(tile.codec, tile.plane, scratch_.centre);
        if (tile.codec.format->centre == Centre::kRotary) {
          step_.curve->turn(scratch_.centre, tile.tile, scratch_.tile_centre);
        } else {
          std::memcpy(scratch_.tile_centre, scratch_.centre, at(1) * sizeof(float));
        }
      }
      decode_k(tile.codec, tile.tile, tile.plane, scratch_.tile_centre, scratch_.k_rows);
      decode_v(tile.codec, tile.tile, tile.plane, v_rows);
    }
    load_half(head_.sinks, head_.sinks_in_tile(position), v_rows);
  }

  void load_half(const HalfRows& rows, int n, float* v_rows) {
    if (n == 0) return;
    kernels_.f16_to_f32(rows.k, scratch_.k_rows, at(n));
    kernels_.f16_to_f32(rows.v, v_rows, at(n));
  }

  void attend(int key, int n) {
    load_keys(key, n);
    // Rows that see any of these keys: those at or after the first key whose window still reaches the last one.
    const int window = step_.layer->window;
    const int first_row = std::max(0, key - first_position_);
    const int last_row = window > 0 ? std::min(unit_.rows, key + n - 1 + window - first_position_) : unit_.rows;
    if (first_row >= last_row) return;
    const int first = first_row * group_, rows = (last_row - first_row) * group_;
    float* scores = scratch_.score_block;
    kernels_.gemm(rows, n, head_dim_, scratch_.q_block + at(first), head_dim_, scratch_.k_transposed, kKeyBlock, scores,
                  kKeyBlock, false);
    bool masked = false;
    for (int r = first_row; r < last_row; ++r) {
      const int position = first_position_ + r;
      const int from = std::clamp(first_key(position, window) - key, 0, n);
      const int to = std::clamp(position + 1 - key, 0, n);
      masked |= from > 0 || to < n;
      for (int g = 0; g < group_; ++g) {
        float* row_scores = scores + static_cast<size_t>((r - first_row) * group_ + g) * kKeyBlock;
        softmax(r * group_ + g, from, to, n, row_scores);
        if (mass_ != nullptr && r >= unit_.rows - unit_.scored) keep_mass(r * group_ + g, key, from, to, row_scores);
      }
    }
    if (masked && !finite(scratch_.v_block, at(n))) {
      accumulate_attended(key, n, first_row, last_row);
      return;
    }
    kernels_.gemm(rows, head_dim_, n, scores, kKeyBlock, scratch_.v_block, head_dim_, out_ + at(first), head_dim_,
                  true);
  }

  /// Turns n scores of one row into weights, of which only [from, to) may be other than zero, and rescales what the row
  /// has gathered so far.
  void softmax(int row, int from, int to, int n, float* scores) {
    std::fill(scores, scores + from, 0.0f);
    std::fill(scores + to, scores + n, 0.0f);
    if (from >= to) return;
    scores += from;
    n = to - from;
    if (step_.layer->softcap > 0) apply_softcap(kernels_, step_.layer->softcap, n, scores);
    const float block_max = kernels_.max(scores, n);
    float max = block_max > max_[row] ? block_max : max_[row];
    if (max == kMinusInfinity || std::isnan(block_max)) {
      // Nothing but -inf and NaN: a NaN key was attended to and must show, -inf keys weigh nothing.
      if (std::none_of(scores, scores + n, [](float x) { return std::isnan(x); })) {
        std::fill_n(scores, n, 0.0f);
        return;
      }
      max = std::numeric_limits<float>::quiet_NaN();
    }
    if (max != max_[row]) {
      const float correction = std::exp(max_[row] - max);
      sum_[row] *= correction;
      float* out = out_ + at(row);
      for (int d = 0; d < head_dim_; ++d) out[d] *= correction;
      max_[row] = max;
    }
    sum_[row] += kernels_.exp_sum(scores, n, max);
  }

  /// Mass of the scored row `i` (of scored * group), and the maximum that each tile of it refers to.
  float* mass_row(int i) const { return mass_ + unit_.mass_row(i); }
  float* reference_row(int i) const { return mass_row(unit_.scored * group_ + i); }

  void clear_mass() {
    if (mass_ == nullptr) return;
    for (int i = 0; i < unit_.scored * group_; ++i) {
      std::fill(mass_row(i) + cut_tiles_.begin, mass_row(i) + cut_tiles_.end, 0.0f);
    }
  }

  /// Weights [from, to) of a block at position `key` go to their tiles, sinks apart. They refer to the row's maximum of
  /// this moment.
  void keep_mass(int row, int key, int from, int to, const float* weights) {
    const int i = row - (unit_.rows - unit_.scored) * group_;
    from = std::max(from, head_.sink_tokens - key);
    for (int t = from; t < to;) {
      const int end = std::min(to, (t / kTileTokens + 1) * kTileTokens);
      const int tile = (key + t) / kTileTokens - unit_.first_tile;
      float sum = 0;
      for (; t < end; ++t) sum += weights[t];
      mass_row(i)[tile] = sum;
      reference_row(i)[tile] = max_[row];
    }
  }

  /// Brings all tiles under the row's final maximum.
  void finish_mass() {
    if (mass_ == nullptr) return;
    for (int i = 0; i < unit_.scored * group_; ++i) {
      const float max = max_[(unit_.rows - unit_.scored) * group_ + i];
      float* mass = mass_row(i);
      for (int t = cut_tiles_.begin; t < cut_tiles_.end; ++t) {
        if (mass[t] != 0.0f) mass[t] *= std::exp(reference_row(i)[t] - max);
      }
    }
  }

  static bool finite(const float* x, size_t n) {
    float probe = 0;  // finite * 0 sums to 0, anything else to NaN
    for (size_t i = 0; i < n; ++i) probe += x[i] * 0.0f;
    return probe == 0.0f;
  }

  /// The product with V token by token: a NaN value row that some rows must not see would leak through 0 * NaN.
  void accumulate_attended(int key, int n, int first_row, int last_row) {
    for (int r = first_row; r < last_row; ++r) {
      const int position = first_position_ + r;
      const int from = std::clamp(first_key(position, step_.layer->window) - key, 0, n);
      const int to = std::clamp(position + 1 - key, 0, n);
      for (int g = 0; g < group_; ++g) {
        const float* p = scratch_.score_block + static_cast<size_t>((r - first_row) * group_ + g) * kKeyBlock;
        float* out = out_ + at(r * group_ + g);
        for (int t = from; t < to; ++t) {
          const float* v = scratch_.v_block + at(t);
          for (int d = 0; d < head_dim_; ++d) out[d] += p[t] * v[d];
        }
      }
    }
  }

  const LayerStep& step_;
  const Unit& unit_;
  ThreadScratch& scratch_;
  const kernels::Kernels& kernels_;
  const HeadView head_;
  const int group_;
  const int head_dim_;
  const int first_position_;
  const int cut_begin_;
  float* max_;             ///< [rows * group]
  float* sum_;             ///< [rows * group]
  float* out_;             ///< [rows * group][head_dim]
  float* mass_ = nullptr;  ///< set where the unit has scored rows
  TileRange cut_tiles_;    ///< of the item, counted from the unit's first
};

}  // namespace

void run_prefill_item(const LayerStep& step, const Item& item, ThreadScratch& scratch) {
  PrefillItem(step, item, scratch).run();
}

}  // namespace varve::attention
