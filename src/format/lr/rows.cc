// Exact rows: groups of kRowGroup values, in int8 and int4 rows each with a scale and a zero (value = zero + scale *
// code), all factors before all codes. Two int4 codes share a byte: value j of a group of n in the low half of byte j,
// value j + n / 2 in its high half.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/lr/block.h"
#include "format/row.h"

namespace varve::format {
namespace {

struct Factors {
  half_t scale, zero;
};
static_assert(sizeof(Factors) == 4);

constexpr int groups(int head_dim) { return (head_dim + kRowGroup - 1) / kRowGroup; }

constexpr size_t bytes(RowCodec codec, int head_dim) {
  const size_t n = static_cast<size_t>(head_dim);
  if (codec == RowCodec::kF16) return n * sizeof(half_t);
  return static_cast<size_t>(groups(head_dim)) * sizeof(Factors) + (codec == RowCodec::kInt8 ? n : n / 2);
}
static_assert(bytes(RowCodec::kInt8, 64) == 68 && bytes(RowCodec::kInt4, 64) == 36);
static_assert(bytes(RowCodec::kInt8, 80) == 88 && bytes(RowCodec::kInt4, 80) == 48);
static_assert(bytes(RowCodec::kInt8, 96) == 104 && bytes(RowCodec::kInt4, 96) == 56);
static_assert(bytes(RowCodec::kInt8, 128) == 136 && bytes(RowCodec::kInt4, 128) == 72);
static_assert(bytes(RowCodec::kInt8, 192) == 204 && bytes(RowCodec::kInt4, 192) == 108);
static_assert(bytes(RowCodec::kInt8, 256) == 272 && bytes(RowCodec::kInt4, 256) == 144);

/// The largest f16 that is at most x, NaN where there is none.
half_t store_down(float x) {
  const half_t h = store_scale(x);
  if (h == kHalfNan || half_to_float(h) <= x) return h;
  if ((h & 0x7fffu) == 0) return 0x8001;  // below zero lies the smallest negative
  const half_t down = static_cast<half_t>((h & 0x8000u) != 0 ? h + 1 : h - 1);
  return store_scale(half_to_float(down));
}

/// Factors with which the codes of x[n] lie in [0, top] without clipping: the zero is rounded first, then the scale up.
Factors factors_of(const float* x, int n, float top) {
  const auto [low, high] = std::minmax_element(x, x + n);
  const half_t zero = store_down(*low);
  const half_t scale = store_scale_up((*high - half_to_float(zero)) / top);
  return zero == kHalfNan || scale == kHalfNan ? Factors{kHalfNan, kHalfNan} : Factors{scale, zero};
}

void codes_of(const float* x, int n, Factors factors, float top, uint8_t* codes) {
  const float scale = half_to_float(factors.scale), zero = half_to_float(factors.zero);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(std::clamp(round_even((x[i] - zero) * inverse), 0.0f, top));
  }
}

void encode_integer(bool is_int4, int head_dim, const float* x, uint8_t* row) {
  const float top = is_int4 ? 15.0f : 255.0f;
  Factors factors[groups(kMaxHeadDim)];
  const int count = groups(head_dim);
  bool lost = !std::isfinite(absmax(x, head_dim));
  for (int g = 0; g < count && !lost; ++g) {
    factors[g] = factors_of(x + g * kRowGroup, std::min(kRowGroup, head_dim - g * kRowGroup), top);
    lost = factors[g].scale == kHalfNan;
  }
  if (lost) std::fill_n(factors, count, Factors{kHalfNan, kHalfNan});
  const size_t factor_bytes = static_cast<size_t>(count) * sizeof(Factors);
  std::memcpy(row, factors, factor_bytes);
  uint8_t* out = row + factor_bytes;
  for (int g = 0; g < count; ++g) {
    const int n = std::min(kRowGroup, head_dim - g * kRowGroup);
    uint8_t codes[kRowGroup] = {};
    if (!lost) codes_of(x + g * kRowGroup, n, factors[g], top, codes);
    if (is_int4) {
      for (int j = 0; j < n / 2; ++j) *out++ = static_cast<uint8_t>(codes[j] | codes[j + n / 2] << 4);
    } else {
      out = std::copy_n(codes, n, out);
    }
  }
}

}  // namespace

size_t row_bytes(RowCodec codec, int head_dim) { return bytes(codec, head_dim); }

void encode_row(RowCodec codec, int head_dim, const float* x, uint8_t* row) {
  if (codec != RowCodec::kF16) return encode_integer(codec == RowCodec::kInt4, head_dim, x, row);
  for (int d = 0; d < head_dim; ++d) {
    const half_t h = float_to_half(x[d]);
    std::memcpy(row + static_cast<size_t>(d) * sizeof(h), &h, sizeof(h));
  }
}

void decode_row(RowCodec codec, int head_dim, const uint8_t* row, float* out) {
  if (codec == RowCodec::kF16) {
    for (int d = 0; d < head_dim; ++d) {
      half_t h;
      std::memcpy(&h, row + static_cast<size_t>(d) * sizeof(h), sizeof(h));
      out[d] = half_to_float(h);
    }
    return;
  }
  const uint8_t* codes = row + static_cast<size_t>(groups(head_dim)) * sizeof(Factors);
  for (int begin = 0; begin < head_dim; begin += kRowGroup, row += sizeof(Factors)) {
    Factors factors;
    std::memcpy(&factors, row, sizeof(factors));
    const float scale = half_to_float(factors.scale), zero = half_to_float(factors.zero);
    const int n = std::min(kRowGroup, head_dim - begin);
    float* x = out + begin;
    if (codec == RowCodec::kInt8) {
      for (int d = 0; d < n; ++d) x[d] = zero + scale * static_cast<float>(codes[d]);
      codes += n;
    } else {
      for (int j = 0; j < n / 2; ++j) {
        x[j] = zero + scale * static_cast<float>(codes[j] & 15);
        x[j + n / 2] = zero + scale * static_cast<float>(codes[j] >> 4);
      }
      codes += n / 2;
    }
  }
}

}  // namespace varve::format
