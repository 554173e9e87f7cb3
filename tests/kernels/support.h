#pragma once
// Shared by the kernel tests: seeded rows, tiles, guarded buffers, and which tables and shapes to walk.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/memory.h"
#include "format/codec.h"
#include "kernels/cpu/kernels.h"

namespace varve::kernels::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int kGroups[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 16};

/// n elements between two zones that must stay as they are.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t n, T fill = T{}) : n_(n), buffer_(2 * kGuard + align_up(n * sizeof(T), kCacheLine)) {
    std::memset(buffer_.data(), kCanary, buffer_.size());
    std::fill(begin(), end(), fill);
  }
  T* data() { return reinterpret_cast<T*>(buffer_.data() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.data() + kGuard); }
  T* begin() { return data(); }
  T* end() { return data() + n_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  size_t size() const { return n_; }

  ::testing::AssertionResult intact() const {
    const uint8_t* bytes = buffer_.data();
    const size_t last = kGuard + n_ * sizeof(T);
    for (size_t i = 0; i < buffer_.size(); ++i) {
      if (i >= kGuard && i < last) continue;
      if (bytes[i] != kCanary) {
        return ::testing::AssertionFailure() << "byte " << static_cast<long>(i) - static_cast<long>(kGuard)
                                             << " of a buffer of " << n_ * sizeof(T) << " was written";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kCanary = 0xa5;
  size_t n_;
  AlignedBuffer buffer_;
};

inline std::vector<float> gaussian(size_t n, unsigned seed, float sigma = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

/// Keys or values as they come: every row has its own length and offset, a few elements stand out.
inline std::vector<float> rows_like_a_cache(int n, int head_dim, unsigned seed) {
  std::vector<float> rows = gaussian(static_cast<size_t>(n * head_dim), seed);
  std::mt19937 random(seed + 1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int t = 0; t < n; ++t) {
    const float length = std::exp2(4.0f * uniform(random)), offset = 0.5f * uniform(random);
    for (int d = 0; d < head_dim; ++d) {
      float& x = rows[static_cast<size_t>(t * head_dim + d)];
      x = length * (x + offset) * (d % 37 == 5 ? 6.0f : 1.0f);
    }
  }
  return rows;
}

/// Quantised queries and what a QueryGroup points at.
struct Query {
  std::vector<float> rows;
  std::vector<int16_t> codes;
  std::vector<float> step;
  std::vector<int32_t> sums;
  int group, head_dim;

  Query(const Kernels& kernels, std::vector<float> values, int group, int head_dim)
      : rows(std::move(values)),
        codes(rows.size()),
        step(static_cast<size_t>(group)),
        sums(static_cast<size_t>(group)),
        group(group),
        head_dim(head_dim) {
    kernels.quantize_query(rows.data(), group, head_dim, codes.data(), step.data(), sums.data());
  }
  QueryGroup view() const { return {group, head_dim, rows.data(), codes.data(), step.data(), sums.data()}; }
};

/// A tile in memory aligned as in a page.
inline Guarded<uint8_t> encode_k(KCodec codec, const std::vector<float>& rows, int head_dim) {
  const format::KCodecInfo& info = format::k_codec(codec);
  Guarded<uint8_t> tile(info.tile_bytes(head_dim));
  info.encode(rows.data(), head_dim, {}, tile.data());
  return tile;
}
inline Guarded<uint8_t> encode_v(VCodec codec, const std::vector<float>& rows, int head_dim) {
  const format::VCodecInfo& info = format::v_codec(codec);
  Guarded<uint8_t> tile(info.tile_bytes(head_dim));
  info.encode(rows.data(), head_dim, {}, tile.data());
  return tile;
}

inline std::vector<float> decode_k(KCodec codec, const Guarded<uint8_t>& tile, int head_dim) {
  std::vector<float> rows(static_cast<size_t>(kTileTokens * head_dim));
  format::k_codec(codec).decode(tile.data(), head_dim, rows.data());
  return rows;
}
inline std::vector<float> decode_v(VCodec codec, const Guarded<uint8_t>& tile, int head_dim) {
  std::vector<float> rows(static_cast<size_t>(kTileTokens * head_dim));
  format::v_codec(codec).decode(tile.data(), head_dim, rows.data());
  return rows;
}

inline std::vector<KCodec> k_codecs() {
  std::vector<KCodec> all;
  for (size_t i = 0; i < kKCodecs; ++i) all.push_back(static_cast<KCodec>(i));
  return all;
}
inline std::vector<VCodec> v_codecs() {
  std::vector<VCodec> all;
  for (size_t i = 0; i < kVCodecs; ++i) all.push_back(static_cast<VCodec>(i));
  return all;
}

inline double norm(const float* x, int n, int stride = 1) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{x[i * stride]} * x[i * stride];
  return std::sqrt(sum);
}

inline double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}

/// Runs once per table of this machine.
class EveryTable : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};

#define VARVE_EVERY_TABLE(suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Tables, suite, ::testing::ValuesIn(available()), \
                           [](const ::testing::TestParamInfo<const Kernels*>& i) { return i.param->name; })

}  // namespace varve::kernels::testing
