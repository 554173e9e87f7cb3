#pragma once
// Seeded rows and error measures shared by the format tests.

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "format/codec.h"
#include "format/plane.h"

namespace varve::format::test {

inline constexpr KCodec kAllK[] = {KCodec::kF16, KCodec::kFp8, KCodec::kInt8, KCodec::kTq6,
                                   KCodec::kTq5, KCodec::kTq4, KCodec::kTq3,  KCodec::kTq2};
inline constexpr VCodec kAllV[] = {VCodec::kF16, VCodec::kFp8, VCodec::kInt8, VCodec::kTq4, VCodec::kTq3, VCodec::kTq2};

inline std::vector<float> gaussian(size_t n, uint32_t seed, float sigma = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

inline size_t tile_floats(int head_dim) { return static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim); }

inline double energy(const float* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

inline double dot(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// |a - b|^2 / |a|^2.
inline double relative_mse(const float* a, const float* b, size_t n) {
  double error = 0;
  for (size_t i = 0; i < n; ++i) {
    const double e = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += e * e;
  }
  return error / energy(a, n);
}

/// Encodes and decodes one tile through a codec's own functions.
template <typename Info>
std::vector<float> round_trip(const Info& codec, int head_dim, const std::vector<float>& rows,
                              const EncodeOptions& options = {}) {
  std::vector<uint8_t> tile(codec.tile_bytes(head_dim));
  codec.encode(rows.data(), head_dim, options, tile.data());
  std::vector<float> back(rows.size());
  codec.decode(tile.data(), head_dim, back.data());
  return back;
}

}  // namespace varve::format::test
