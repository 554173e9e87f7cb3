#include "format/lr/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "format/lr/select.h"
#include "format/lr/svd.h"
#include "format/row.h"

namespace varve::format {
namespace {

constexpr float kHalfMax = 65504.0f;
constexpr float kRowNormFloor = 1e-5f;

SvdShape svd_shape(const BlockShape& shape, const LowRankOptions& options) {
  const int width = shape.width();
  return {shape.tokens, width, sketch_width(shape.format.rank, options.oversample, shape.tokens, width)};
}

/// Errors of a tile: its U, what it decodes to (one row more, the last of the tile before), the basis.
size_t error_scratch_floats(const BlockShape& shape) {
  const size_t rank = static_cast<size_t>(shape.format.rank), width = static_cast<size_t>(shape.width());
  return kTileTokens * rank + (kTileTokens + 1) * width + rank * width;
}

/// max - min of x[n], n a multiple of kLanes.
float value_range(const float* x, int n) {
  float low[kLanes], high[kLanes];
  std::copy_n(x, kLanes, low);
  std::copy_n(x, kLanes, high);
  for (int d = kLanes; d < n; d += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      low[i] = x[d + i] < low[i] ? x[d + i] : low[i];
      high[i] = x[d + i] > high[i] ? x[d + i] : high[i];
    }
  }
  return *std::max_element(high, high + kLanes) - *std::min_element(low, low + kLanes);
}

/// The steps of one block, in the order of run().
class Encoder {
 public:
  Encoder(const BlockShape& shape, const LowRankOptions& options, const TokenTraits& traits, int skip, const float* k,
          const float* v, Gemm gemm, float* scratch, uint8_t* block)
      : shape_(shape),
        options_(options),
        traits_(traits),
        skip_(skip),
        k_(k),
        v_(v),
        gemm_(gemm),
        block_(block),
        tokens_(static_cast<size_t>(shape.tokens)),
        half_(static_cast<size_t>(shape.kv_heads * shape.head_dim)),
        width_(2 * half_),
        svd_(svd_shape(shape, options)),
        state_(tokens_, RowState::kFree),
        norm_(tokens_),
        anchor_(width_) {
    const size_t sketch = static_cast<size_t>(svd_.width);
    delta_ = scratch;
    vt_ = delta_ + tokens_ * width_;
    c_ = vt_ + sketch * width_;
    work_ = c_ + sketch * tokens_;
  }

  BlockReport run() {
    std::memset(block_, 0, block_bytes(shape_));
    choose_anchor();
    fill_deltas();
    choose_rank();
    if (rank_ < 0) return lose_all();
    scale_directions();
    quantise();
    find_errors();
    const RowSelection selection =
        select_rows({errors_, collisions_, state_}, traits_, options_, rows_at_rank(shape_, rank_));
    // What exact rows replace needs no range: the others get finer steps.
    for (const uint16_t t : selection.rows) norm_[t] = 0;
    quantise();
    write(selection.rows);
    report_.rank = rank_;
    report_.rows = static_cast<int>(selection.rows.size());
    report_.rows_of_runs = selection.rows_of_runs;
    report_.runs_left_out = selection.runs_left_out;
    return report_;
  }

 private:
  float* delta(size_t t) { return delta_ + t * width_; }

  static bool is_lost(const float* x, size_t n) { return !(absmax(x, static_cast<int>(n)) <= kHalfMax); }

  void choose_anchor() {
    for (size_t t = 0; t < tokens_; ++t) {
      if (t < static_cast<size_t>(skip_)) {
        state_[t] = RowState::kNeverNeeded;
      } else if (is_lost(k_ + t * half_, half_) || is_lost(v_ + t * half_, half_)) {
        state_[t] = RowState::kLost;
      }
    }
    const auto sound = std::find(state_.begin(), state_.end(), RowState::kFree);
    if (sound == state_.end()) return;
    *sound = RowState::kNeverNeeded;
    const size_t t = static_cast<size_t>(sound - state_.begin());
    // Rounded first: deltas are from what the reader adds back.
    for (size_t d = 0; d < half_; ++d) {
      anchor_[d] = half_to_float(float_to_half(k_[t * half_ + d]));
      anchor_[half_ + d] = half_to_float(float_to_half(v_[t * half_ + d]));
    }
  }

  void row_delta(size_t t, float* out) const {
    for (size_t d = 0; d < half_; ++d) out[d] = k_[t * half_ + d] - anchor_[d];
    for (size_t d = 0; d < half_; ++d) out[half_ + d] = v_[t * half_ + d] - anchor_[half_ + d];
  }

  /// delta_ <- rows of the SVD: deltas, values weighted to balance keys, each row of norm 1; norm_ <- their norms.
  void fill_deltas() {
    double k_energy = 0, v_energy = 0;
    const int n = static_cast<int>(half_);
    for (size_t t = 0; t < tokens_; ++t) {
      float* row = delta(t);
      if (state_[t] == RowState::kFree) {
        row_delta(t, row);
        if (is_lost(row, width_)) state_[t] = RowState::kLost;
      }
      if (state_[t] != RowState::kFree) {
        std::fill_n(row, width_, 0.0f);
        continue;
      }
      k_energy += static_cast<double>(lane_sum(n, [&](int d) { return row[d] * row[d]; }));
      v_energy += static_cast<double>(lane_sum(n, [&](int d) { return row[n + d] * row[n + d]; }));
    }
    if (v_energy > 0) balance_ = static_cast<float>(std::clamp(std::sqrt(k_energy / v_energy), 1.0, 1e4));
    for (size_t t = 0; t < tokens_; ++t) {
      float* row = delta(t);
      for (size_t d = half_; d < width_; ++d) row[d] *= balance_;
      const float norm = std::sqrt(lane_sum(2 * n, [&](int d) { return row[d] * row[d]; }));
      norm_[t] = norm > 0 ? std::max(norm, kRowNormFloor) : 0.0f;
      const float inverse = norm > 0 ? 1.0f / norm_[t] : 0.0f;
      for (size_t d = 0; d < width_; ++d) row[d] *= inverse;
      total_energy_ += static_cast<double>(norm * inverse) * static_cast<double>(norm * inverse);
    }
  }

  /// rank_ <- how many directions to keep; -1 when lost rows do not fit even beside none.
  void choose_rank() {
    std::vector<double> energy(static_cast<size_t>(svd_.width));
    if (total_energy_ > 0) {
      randomised_svd(svd_, delta_, options_.power_iterations, options_.seed, gemm_, work_, vt_, c_, energy.data());
    }
    const int most = std::min(shape_.format.rank, svd_.width);
    const double floor = total_energy_ * 1e-7;  // fp32 products leave about this much where nothing is
    int found = 0;
    double kept = 0;
    while (found < most && energy[static_cast<size_t>(found)] > floor && kept < options_.energy * total_energy_) {
      kept += energy[static_cast<size_t>(found++)];
    }
    rank_ = std::max(static_cast<int>(std::ceil(static_cast<float>(found) * traits_.rank_boost)), options_.least_rank);
    rank_ = std::min(rank_, most);
    while (rank_ > 0 && energy[static_cast<size_t>(rank_ - 1)] <= floor) --rank_;
    report_.rows_lost = static_cast<int>(std::count(state_.begin(), state_.end(), RowState::kLost));
    while (rank_ >= 0 && rows_at_rank(shape_, rank_) < report_.rows_lost) --rank_;
    double retained = 0;
    for (int i = 0; i < rank_; ++i) retained += energy[static_cast<size_t>(i)];
    report_.retained_energy = total_energy_ > 0 ? std::min(1.0, retained / total_energy_) : 1.0;
  }

  /// A block that would have to present lost rows as sound ones.
  BlockReport lose_all() {
    rank_ = 0;
    std::fill(anchor_.begin(), anchor_.end(), std::numeric_limits<float>::quiet_NaN());
    report_.retained_energy = 0;
    report_.rows_lost = shape_.tokens;
    write({});
    return report_;
  }

  /// U of token t: row t of D . V, D the balanced deltas.
  float u(size_t t, size_t i) const { return norm_[t] * c_[t * static_cast<size_t>(svd_.width) + i]; }

  /// vt_ <- directions of deltas as they are.
  void scale_directions() {
    for (size_t i = 0; i < static_cast<size_t>(rank_); ++i) {
      float* direction = vt_ + i * width_;
      for (size_t d = half_; d < width_; ++d) direction[d] /= balance_;
    }
  }

  /// codes_ [rank][tokens] <- int8 U; basis_ [rank][width] <- directions times the scale of their U.
  void quantise() {
    const size_t rank = static_cast<size_t>(rank_);
    codes_.resize(rank * tokens_);
    basis_.resize(rank * width_);
    for (size_t i = 0; i < rank; ++i) {
      float largest = 0;
      for (size_t t = 0; t < tokens_; ++t) largest = std::max(largest, std::fabs(u(t, i)));
      const float* direction = vt_ + i * width_;
      const float peak = absmax(direction, static_cast<int>(width_));
      // A basis row must fit f16; U then saturates, which its rows' errors show.
      const float scale = peak > 0 ? std::min(largest / 127.0f, kHalfMax / peak) : 0.0f;
      const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
      for (size_t t = 0; t < tokens_; ++t) {
        codes_[i * tokens_ + t] = static_cast<int8_t>(std::clamp(round_even(u(t, i) * inverse), -127.0f, 127.0f));
      }
      for (size_t d = 0; d < width_; ++d) basis_[i * width_ + d] = float_to_half(scale * direction[d]);
    }
  }

  /// What the row codec is expected to lose of a row: steps of their groups' ranges, evenly hit.
  float coded_error(const float* row) const {
    if (shape_.format.row_codec == RowCodec::kF16) return 0;
    const float top = shape_.format.row_codec == RowCodec::kInt8 ? 255.0f : 15.0f;
    float sum = 0;
    for (size_t head = 0; head < width_; head += static_cast<size_t>(shape_.head_dim)) {
      for (int begin = 0; begin < shape_.head_dim; begin += kRowGroup) {
        const int n = std::min(kRowGroup, shape_.head_dim - begin);
        const float step = value_range(row + head + begin, n) / top;
        sum += step * step * static_cast<float>(n);
      }
    }
    return std::sqrt(sum / 12);
  }

  /// errors_, collisions_ of every row, over the codes and the basis as they are stored. No error where an exact row
  /// would have a larger one.
  void find_errors() {
    const size_t rank = static_cast<size_t>(rank_);
    const int n = static_cast<int>(half_);
    float* u_tile = work_;                       // [64][rank]
    float* basis = u_tile + kTileTokens * rank;  // [rank][width], values balanced
    float* decoded = basis + rank * width_;      // [1 + 64][width], the first of the row before the tile
    for (size_t i = 0; i < rank; ++i) {
      for (size_t d = 0; d < width_; ++d) {
        basis[i * width_ + d] = half_to_float(basis_[i * width_ + d]) * (d < half_ ? 1.0f : balance_);
      }
    }
    errors_.assign(tokens_, 0.0f);
    collisions_.assign(tokens_, 0.0f);
    std::fill_n(decoded, width_, 0.0f);
    for (size_t first = 0; first < tokens_; first += kTileTokens) {
      for (size_t i = 0; i < rank; ++i) {
        for (size_t t = 0; t < kTileTokens; ++t) u_tile[t * rank + i] = codes_[i * tokens_ + first + t];
      }
      float* rows = decoded + width_;
      gemm_(kTileTokens, static_cast<int>(width_), rank_, u_tile, rank_, basis, static_cast<int>(width_), rows,
            static_cast<int>(width_), false);
      for (size_t t = 0; t < kTileTokens; ++t) {
        if (state_[first + t] != RowState::kFree) continue;
        const float* now = rows + t * width_;
        const float* exact = delta(first + t);
        const float norm = norm_[first + t];
        const auto square = [](float x) { return x * x; };
        const float error = std::sqrt(lane_sum(2 * n, [&](int d) { return square(now[d] - norm * exact[d]); }));
        errors_[first + t] = error > norm * coded_error(exact) ? error : 0.0f;
        if (first + t == 0) continue;
        // Two keys that were apart and decode to one.
        const float* before = exact - width_;
        const float norm_before = norm_[first + t - 1];
        const float apart = lane_sum(n, [&](int d) { return square(norm * exact[d] - norm_before * before[d]); });
        const float decoded_apart = lane_sum(n, [&](int d) { return square(now[d] - *(now - width_ + d)); });
        if (apart > 0) collisions_[first + t] = std::clamp(1.0f - std::sqrt(decoded_apart / apart), 0.0f, 1.0f);
      }
      std::copy_n(rows + (kTileTokens - 1) * width_, width_, decoded);
    }
  }

  template <typename T>
  static T* at(const void* pointer) {
    return static_cast<T*>(const_cast<void*>(pointer));
  }

  void write(const std::vector<uint16_t>& rows) {
    const BlockHeader header{static_cast<uint16_t>(rank_),
                             static_cast<uint16_t>(rows.size()),
                             static_cast<float>(report_.retained_energy),
                             {}};
    std::memcpy(block_, &header, sizeof(header));
    const BlockView view = view_block(shape_, block_);
    std::copy(rows.begin(), rows.end(), at<uint16_t>(view.row_tokens));
    const int tiles = shape_.tokens / kTileTokens;
    for (int tile = 0; tile <= tiles; ++tile) {
      at<uint16_t>(view.tile_rows)[tile] =
          static_cast<uint16_t>(std::lower_bound(rows.begin(), rows.end(), tile * kTileTokens) - rows.begin());
    }
    const size_t rank = static_cast<size_t>(rank_);
    for (int tile = 0; tile < tiles; ++tile) {
      for (size_t i = 0; i < rank; ++i) {
        std::copy_n(codes_.data() + i * tokens_ + static_cast<size_t>(tile) * kTileTokens, kTileTokens,
                    at<int8_t>(view.u_tile(tile)) + i * kTileTokens);
      }
    }
    for (size_t d = 0; d < width_; ++d) at<half_t>(view.anchor)[d] = float_to_half(anchor_[d]);
    const size_t dim = static_cast<size_t>(shape_.head_dim);
    const size_t coded = row_bytes(shape_.format.row_codec, shape_.head_dim);
    half_t* basis = at<half_t>(view.basis);
    uint8_t* exact = at<uint8_t>(view.exact);
    std::vector<float> row(width_);
    for (size_t plane = 0; plane < width_ / dim; ++plane) {  // of head plane / 2: K, then V
      const size_t column = (plane % 2 * static_cast<size_t>(shape_.kv_heads) + plane / 2) * dim;
      for (size_t i = 0; i < rank; ++i) {
        std::copy_n(basis_.data() + i * width_ + column, dim, basis + (plane * rank + i) * dim);
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        row_delta(rows[r], row.data());
        encode_row(shape_.format.row_codec, shape_.head_dim, row.data() + column,
                   exact + (plane * rows.size() + r) * coded);
      }
    }
  }

  const BlockShape& shape_;
  const LowRankOptions& options_;
  const TokenTraits& traits_;
  const int skip_;
  const float* k_;
  const float* v_;
  const Gemm gemm_;
  uint8_t* block_;
  const size_t tokens_, half_, width_;  ///< half_: of a joint row, K or V of all heads
  const SvdShape svd_;
  float* delta_;  ///< [tokens][width]
  float* vt_;     ///< [sketch][width]
  float* c_;      ///< [tokens][sketch]
  float* work_;   ///< of the SVD, then of the errors

  std::vector<RowState> state_;
  std::vector<float> norm_;
  std::vector<float> anchor_;
  float balance_ = 1.0f;
  double total_energy_ = 0;
  int rank_ = 0;
  std::vector<int8_t> codes_;
  std::vector<half_t> basis_;
  std::vector<float> errors_, collisions_;
  BlockReport report_;
};

}  // namespace

size_t encode_scratch_floats(const BlockShape& shape, const LowRankOptions& options) {
  const SvdShape svd = svd_shape(shape, options);
  const size_t tokens = static_cast<size_t>(svd.rows), width = static_cast<size_t>(svd.columns);
  return tokens * width + static_cast<size_t>(svd.width) * (tokens + width) +
         std::max(svd_scratch_floats(svd), error_scratch_floats(shape));
}

BlockReport encode_block(const BlockShape& shape, const LowRankOptions& options, const TokenTraits& traits, int skip,
                         const float* k, const float* v, Gemm gemm, float* scratch, uint8_t* block) {
  return Encoder(shape, options, traits, skip, k, v, gemm, scratch, block).run();
}

}  // namespace varve::format
