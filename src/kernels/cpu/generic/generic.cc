// The generic table: every kernel written the way its contract reads. Encoders, decoders and the rotation are the
// scalar references of src/format.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "format/fp8/e4m3.h"
#include "format/rotation.h"
#include "format/tq/codebook.h"
#include "kernels/cpu/generic/planar.h"
#include "kernels/cpu/tables.h"

namespace varve::kernels::generic {
namespace {

float load_half(const uint8_t* p, int i) { return half_to_float(reinterpret_cast<const uint16_t*>(p)[i]); }

/// The integer that a code stands for, times kUnit the row's scale.
template <int kBits>
struct Integer {
  static float value(uint8_t code) { return static_cast<float>(format::tq::kLevels<kBits>[code]); }
  static constexpr float kUnit = 1.0f / 128;
};
template <>
struct Integer<8> {
  static float value(uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); }
  static constexpr float kUnit = 1;
};

template <int kBits>
void k_scores_planar(const uint8_t* tile, const QueryGroup& q, float* scores) {
  const uint8_t* norms = tile + planar_code_bytes(q.head_dim, kBits);
  std::vector<float> row(static_cast<size_t>(q.head_dim));
  for (int t = 0; t < kTileTokens; ++t) {
    for (int d = 0; d < q.head_dim; ++d) {
      row[static_cast<size_t>(d)] = Integer<kBits>::value(planar_code(tile, q.head_dim, kBits, kTileTokens, d, t));
    }
    const float scale = load_half(norms, t) * Integer<kBits>::kUnit;
    for (int g = 0; g < q.group; ++g) {
      double sum = 0;
      for (int d = 0; d < q.head_dim; ++d) sum += double{q.rows[g * q.head_dim + d]} * row[static_cast<size_t>(d)];
      scores[g * kTileTokens + t] = static_cast<float>(sum * scale);
    }
  }
}

/// Adds p . rows to acc. rows: [n][head_dim], p: [group] rows of `stride`.
void accumulate_rows(const float* rows, int n, int head_dim, int group, int stride, const float* p, float* acc) {
  for (int g = 0; g < group; ++g) {
    for (int d = 0; d < head_dim; ++d) {
      double sum = 0;
      for (int t = 0; t < n; ++t) sum += double{p[g * stride + t]} * rows[t * head_dim + d];
      acc[g * head_dim + d] += static_cast<float>(sum);
    }
  }
}

template <int kBits>
void v_accumulate_planar(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  const uint8_t* scales = tile + planar_code_bytes(head_dim, kBits);
  std::vector<float> rows(static_cast<size_t>(kTileTokens * head_dim));
  for (int t = 0; t < kTileTokens; ++t) {
    const float scale = load_half(scales, t) * Integer<kBits>::kUnit;
    const float zero = kBits == 8 ? 0.0f : load_half(scales, kTileTokens + t);
    for (int d = 0; d < head_dim; ++d) {
      rows[static_cast<size_t>(t * head_dim + d)] =
          zero + scale * Integer<kBits>::value(planar_code(tile, head_dim, kBits, head_dim, t, d));
    }
  }
  accumulate_rows(rows.data(), kTileTokens, head_dim, group, kTileTokens, p, acc);
}

void f16_scores(const uint16_t* k, int n, const QueryGroup& q, int stride, float* scores) {
  for (int t = 0; t < n; ++t) {
    for (int g = 0; g < q.group; ++g) {
      double sum = 0;
      for (int d = 0; d < q.head_dim; ++d) {
        sum += double{q.rows[g * q.head_dim + d]} * half_to_float(k[t * q.head_dim + d]);
      }
      scores[g * stride + t] = static_cast<float>(sum);
    }
  }
}

void f16_accumulate(const uint16_t* v, int n, int head_dim, int group, int stride, const float* p, float* acc) {
  std::vector<float> rows(static_cast<size_t>(n * head_dim));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = half_to_float(v[i]);
  accumulate_rows(rows.data(), n, head_dim, group, stride, p, acc);
}

void k_scores_f16(const uint8_t* tile, const QueryGroup& q, float* scores) {
  f16_scores(reinterpret_cast<const uint16_t*>(tile), kTileTokens, q, kTileTokens, scores);
}

void v_accumulate_f16(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  f16_accumulate(reinterpret_cast<const uint16_t*>(tile), kTileTokens, head_dim, group, kTileTokens, p, acc);
}

void k_scores_fp8(const uint8_t* tile, const QueryGroup& q, float* scores) {
  const uint8_t* scales = tile + kTileTokens * q.head_dim;
  for (int t = 0; t < kTileTokens; ++t) {
    for (int g = 0; g < q.group; ++g) {
      double sum = 0;
      for (int d = 0; d < q.head_dim; ++d) {
        sum += double{q.rows[g * q.head_dim + d]} * format::fp8::e4m3_to_float(tile[t * q.head_dim + d]);
      }
      scores[g * kTileTokens + t] = static_cast<float>(sum * load_half(scales, t));
    }
  }
}

void v_accumulate_fp8(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  const uint8_t* scales = tile + kTileTokens * head_dim;
  std::vector<float> rows(static_cast<size_t>(kTileTokens * head_dim));
  for (int i = 0; i < kTileTokens * head_dim; ++i) {
    rows[static_cast<size_t>(i)] = format::fp8::e4m3_to_float(tile[i]) * load_half(scales, i / head_dim);
  }
  accumulate_rows(rows.data(), kTileTokens, head_dim, group, kTileTokens, p, acc);
}

void quantize_query(const float* rows, int group, int head_dim, int16_t* codes, float* step, int32_t* sums) {
  for (int g = 0; g < group; ++g) {
    const float* row = rows + g * head_dim;
    int16_t* code = codes + g * head_dim;
    float largest = 0;
    bool finite = true;
    for (int d = 0; d < head_dim; ++d) {
      finite = finite && std::isfinite(row[d]);
      largest = std::max(largest, std::abs(row[d]));
    }
    step[g] = finite ? largest / kQueryCodeMax : std::numeric_limits<float>::quiet_NaN();
    // A step that is not a normal number cannot carry 15 bits; such a row is zero for every purpose of attention.
    if (finite && step[g] < std::numeric_limits<float>::min()) step[g] = 0;
    sums[g] = 0;
    for (int d = 0; d < head_dim; ++d) {
      const auto rounded = step[g] > 0 ? static_cast<int16_t>(std::nearbyint(row[d] / step[g])) : int16_t{0};
      code[pair_place(d)] = rounded;
      sums[g] += rounded;
    }
  }
}

/// A rotation of this head_dim with whatever signs S0 it has; kernels are given the signs S of another.
const format::Rotation& any_rotation(int head_dim) {
  static const std::vector<format::Rotation> all = [] {
    std::vector<format::Rotation> v;
    for (const int dim : format::kHeadDims) v.push_back(*format::Rotation::create(dim, 0));
    return v;
  }();
  return *std::find_if(all.begin(), all.end(), [&](const auto& r) { return r.head_dim() == head_dim; });
}

/// rows <- S0.S.rows, which turns H.S0 into H.S. Flipping signs is exact.
void swap_signs(float* rows, int n, int head_dim, const float* from, const float* to) {
  for (int i = 0; i < n * head_dim; ++i) rows[i] *= from[i % head_dim] * to[i % head_dim];
}

void rotate(float* rows, int n, int head_dim, const float* signs) {
  const format::Rotation& rotation = any_rotation(head_dim);
  swap_signs(rows, n, head_dim, rotation.signs(), signs);
  rotation.forward(rows, n);
}

void unrotate(float* rows, int n, int head_dim, const float* signs) {
  const format::Rotation& rotation = any_rotation(head_dim);
  rotation.inverse(rows, n);
  swap_signs(rows, n, head_dim, rotation.signs(), signs);
}

float exp_sum(float* scores, int n, float max) {
  double sum = 0;
  for (int t = 0; t < n; ++t) {
    scores[t] = std::exp(scores[t] - max);
    sum += scores[t];
  }
  return static_cast<float>(sum);
}

float max(const float* x, int n) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc, bool accumulate) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = accumulate ? c[i * ldc + j] : 0.0f;
      for (int l = 0; l < k; ++l) sum += double{a[i * lda + l]} * b[l * ldb + j];
      c[i * ldc + j] = static_cast<float>(sum);
    }
  }
}

void curve_terms(const float* q, const float* u, int head_dim, int pairs, bool neox, float* terms) {
  const int padded = curve_padded(pairs);
  std::fill_n(terms, curve_term_floats(pairs), 0.0f);
  for (int p = 0; p < pairs; ++p) {
    const int i = neox ? p : 2 * p, j = neox ? p + pairs : 2 * p + 1;
    terms[p] = static_cast<float>(double{q[i]} * u[i] + double{q[j]} * u[j]);
    terms[padded + p] = static_cast<float>(double{q[j]} * u[i] - double{q[i]} * u[j]);
  }
  double constant = 0;
  for (int d = 2 * pairs; d < head_dim; ++d) constant += double{q[d]} * u[d];
  terms[2 * padded] = static_cast<float>(constant);
}

void add_curve(const CurveTable& table, int group, const float* terms, float* scores) {
  constexpr int kHalf = kTileTokens / 2;
  const int padded = curve_padded(table.pairs), slow = padded - table.fast;
  for (int g = 0; g < group; ++g, terms += curve_term_floats(table.pairs), scores += kTileTokens) {
    for (int j = 0; j < kHalf; ++j) {
      double even = terms[2 * padded], odd = 0;
      for (int p = 0; p < padded; ++p) {
        double cosine = 0, sine = 0;  // of the pair's angle at token j from the middle
        if (p < table.fast) {
          cosine = table.even[p * kHalf + j];
          sine = table.odd[p * kHalf + j];
        }
        for (int k = 0; p >= table.fast && k < kCurvePowers; ++k) {
          const int row = (table.fast + k) * kHalf + j, power = k * slow + p - table.fast;
          cosine += double{table.even_powers[power]} * table.even[row];
          sine += double{table.odd_powers[power]} * table.odd[row];
        }
        const double a = terms[p], b = terms[padded + p], c = table.cos[p], s = table.sin[p];
        even += (a * c + b * s) * cosine;
        odd += (b * c - a * s) * sine;
      }
      scores[kHalf + j] += static_cast<float>(even + odd);
      scores[kHalf - 1 - j] += static_cast<float>(even - odd);
    }
  }
}

void transpose(int rows, int columns, const float* from, int from_stride, float* to, int to_stride) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

void f32_to_f16(const float* src, uint16_t* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = float_to_half(src[i]);
}

void f16_to_f32(const uint16_t* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = half_to_float(src[i]);
}

void i8_to_f32(const int8_t* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}

void turn(float* x, float* y, int n, float c0, float s0, const float* c, const float* s) {
  for (int t = 0; t < n; ++t) {
    const float cosine = c0 * c[t] - s0 * s[t], sine = s0 * c[t] + c0 * s[t];
    const float turned = x[t] * cosine - y[t] * sine;
    y[t] = x[t] * sine + y[t] * cosine;
    x[t] = turned;
  }
}

Kernels make_table() {
  Kernels table = {};
  table.name = "generic";
  table.k_scores = {k_scores_f16,       k_scores_fp8,       k_scores_planar<8>, k_scores_planar<6>,
                    k_scores_planar<5>, k_scores_planar<4>, k_scores_planar<3>, k_scores_planar<2>};
  table.v_accumulate = {v_accumulate_f16,       v_accumulate_fp8,       v_accumulate_planar<8>,
                        v_accumulate_planar<4>, v_accumulate_planar<3>, v_accumulate_planar<2>};
  for (size_t i = 0; i < kKCodecs; ++i) {
    table.k_decode[i] = format::k_codec(static_cast<KCodec>(i)).decode;
    table.k_encode[i] = format::k_codec(static_cast<KCodec>(i)).encode;
  }
  for (size_t i = 0; i < kVCodecs; ++i) {
    table.v_decode[i] = format::v_codec(static_cast<VCodec>(i)).decode;
    table.v_encode[i] = format::v_codec(static_cast<VCodec>(i)).encode;
  }
  table.quantize_query = quantize_query;
  table.rotate = rotate;
  table.unrotate = unrotate;
  table.f16_scores = f16_scores;
  table.f16_accumulate = f16_accumulate;
  table.exp_sum = exp_sum;
  table.max = max;
  table.gemm = gemm;
  table.curve_terms = curve_terms;
  table.add_curve = add_curve;
  table.transpose = transpose;
  table.f32_to_f16 = f32_to_f16;
  table.f16_to_f32 = f16_to_f32;
  table.i8_to_f32 = i8_to_f32;
  table.turn = turn;
  return table;
}

}  // namespace
}  // namespace varve::kernels::generic

namespace varve::kernels {

const Kernels& generic_table() {
  static const Kernels table = generic::make_table();
  return table;
}

}  // namespace varve::kernels
