#include "support/naive_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace varve::testing {
namespace {

float dot(const float* a, const float* b, int n) {
  float sums[8] = {};
  for (int i = 0; i < n; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

NaiveAttention::NaiveAttention(const model::ModelInfo& info, int capacity, bool exact)
    : info_(info), capacity_(capacity), exact_(exact) {
  for (const model::LayerInfo& l : info.kv_layers) {
    const size_t floats = static_cast<size_t>(capacity) * static_cast<size_t>(l.kv_heads * l.head_dim);
    k_.emplace_back(floats);
    v_.emplace_back(floats);
  }
}

void NaiveAttention::begin_step(int past, int rows) {
  past_ = past;
  rows_ = rows;
  size_t most = 0;
  for (const model::LayerInfo& l : info_.kv_layers) most = std::max(most, static_cast<size_t>(l.q_heads * l.head_dim));
  out_.resize(static_cast<size_t>(rows) * most);
}

void NaiveAttention::append(int layer, const float* k, const float* v, int thread, int threads) {
  const auto l = static_cast<size_t>(layer);
  const auto width = static_cast<size_t>(info_.kv_layers[l].kv_heads * info_.kv_layers[l].head_dim);
  const auto stored = [&](float x) { return exact_ ? x : half_to_float(float_to_half(x)); };
  for (int row = thread; row < rows_; row += threads) {
    const size_t from = static_cast<size_t>(row) * width, to = static_cast<size_t>(past_ + row) * width;
    for (size_t i = 0; i < width; ++i) {
      k_[l][to + i] = stored(k[from + i]);
      v_[l][to + i] = stored(v[from + i]);
    }
  }
}

void NaiveAttention::attend(const model::LayerInfo& info, int kv_head, int position, const float* q, float* out,
                            float* scores) const {
  const auto l = static_cast<size_t>(info.layer);
  const auto width = static_cast<size_t>(info.kv_heads * info.head_dim);
  const size_t column = static_cast<size_t>(kv_head * info.head_dim);
  const int begin = info.window > 0 ? std::max(0, position - info.window + 1) : 0;
  float highest = -INFINITY;
  for (int j = begin; j <= position; ++j) {
    float s = dot(q, &k_[l][static_cast<size_t>(j) * width + column], info.head_dim) * info.scale;
    if (info.softcap > 0) s = info.softcap * std::tanh(s / info.softcap);
    scores[j] = s;
    highest = std::max(highest, s);
  }
  float total = 0;
  std::fill(out, out + info.head_dim, 0.0f);
  for (int j = begin; j <= position; ++j) {
    const float weight = std::exp(scores[j] - highest);
    total += weight;
    const float* v = &v_[l][static_cast<size_t>(j) * width + column];
    for (int i = 0; i < info.head_dim; ++i) out[i] += weight * v[i];
  }
  for (int i = 0; i < info.head_dim; ++i) out[i] /= total;
}

void NaiveAttention::partial(int layer, const float* q, int thread, int threads) {
  const model::LayerInfo& info = info_.kv_layers[static_cast<size_t>(layer)];
  const int group = info.q_heads / info.kv_heads;
  std::vector<float> scores(static_cast<size_t>(capacity_));
  for (int item = thread; item < rows_ * info.q_heads; item += threads) {
    const int row = item / info.q_heads, head = item % info.q_heads;
    const size_t at = static_cast<size_t>(item) * static_cast<size_t>(info.head_dim);
    attend(info, head / group, past_ + row, q + at, &out_[at], scores.data());
  }
}

void NaiveAttention::merge(int layer, float* out, int thread, int threads) {
  const model::LayerInfo& info = info_.kv_layers[static_cast<size_t>(layer)];
  const auto width = static_cast<size_t>(info.q_heads * info.head_dim);
  for (int row = thread; row < rows_; row += threads) {
    const size_t at = static_cast<size_t>(row) * width;
    std::memcpy(out + at, &out_[at], width * sizeof(float));
  }
}

}  // namespace varve::testing
