#include "format/rotation.h"

#include <cmath>
#include <string>

#include "format/codec.h"
#include "format/hadamard.h"

namespace varve::format {
namespace {

/// Sebastiano Vigna's splitmix64: the stream is part of the page format, so it is spelled out here.
uint64_t splitmix64(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Unnormalised Sylvester transform of each of the n / order runs of `order` elements.
void sylvester(float* x, int n, int order) {
  for (int half = 1; half < order; half *= 2) {
    for (int base = 0; base < n; base += 2 * half) {
      for (int i = base; i < base + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

/// x[a][b] <- sum_a' core[a][a'] x[a'][b].
template <size_t order>
void dense_core(const std::array<std::array<int8_t, order>, order>& core, float* x, int width) {
  float out[kMaxHeadDim] = {};
  for (size_t a = 0; a < order; ++a) {
    float* sum = out + a * static_cast<size_t>(width);
    for (size_t from = 0; from < order; ++from) {
      const float sign = core[a][from];
      const float* in = x + from * static_cast<size_t>(width);
      for (int b = 0; b < width; ++b) sum[b] += sign * in[b];
    }
  }
  for (int i = 0; i < static_cast<int>(order) * width; ++i) x[i] = out[i];
}

/// x <- H.x, normalised. H is symmetric, so this is its own inverse.
void hadamard(float* x, int head_dim) {
  const int core = hadamard_core_order(head_dim);
  const int width = head_dim / core;
  sylvester(x, head_dim, width);
  if (core == 12) dense_core(kHadamard12, x, width);
  if (core == 20) dense_core(kHadamard20, x, width);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  for (int i = 0; i < head_dim; ++i) x[i] *= scale;
}

}  // namespace

Result<Rotation> Rotation::create(int head_dim, uint64_t seed) {
  if (!head_dim_supported(head_dim) || hadamard_core_order(head_dim) == 0) {
    return unsupported("no rotation for head_dim " + std::to_string(head_dim) +
                       "; supported are 64, 80, 96, 128, 192, 256");
  }
  Rotation r;
  r.head_dim_ = head_dim;
  r.seed_ = seed;
  r.signs_.resize(static_cast<size_t>(head_dim));
  uint64_t state = seed ^ (static_cast<uint64_t>(head_dim) << 32);
  for (float& sign : r.signs_) sign = splitmix64(state) >> 63 ? -1.0f : 1.0f;
  return r;
}

void Rotation::forward(float* rows, int n) const {
  for (int r = 0; r < n; ++r) {
    float* row = rows + static_cast<size_t>(r) * static_cast<size_t>(head_dim_);
    for (int d = 0; d < head_dim_; ++d) row[d] *= signs_[static_cast<size_t>(d)];
    hadamard(row, head_dim_);
  }
}

void Rotation::inverse(float* rows, int n) const {
  for (int r = 0; r < n; ++r) {
    float* row = rows + static_cast<size_t>(r) * static_cast<size_t>(head_dim_);
    hadamard(row, head_dim_);
    for (int d = 0; d < head_dim_; ++d) row[d] *= signs_[static_cast<size_t>(d)];
  }
}

}  // namespace varve::format
