// fp32 kernels that know no codec: matrix product, exponentials, conversions.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/dense.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <limits>

#include "base/half.h"
#include "kernels/cpu/simd/gemm-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Columns of b that a block of kBlockRows rows takes at once, and the panel of them that fits the first-level cache.
constexpr int kPanelColumns = kBlockVectors<kBlockRows> * kLanes;
constexpr int kPanelFloats = 8192;
constexpr int kPanelRows = kPanelFloats / kPanelColumns;

/// panel[rows][columns] = b, columns a whole number of vectors unless it is the last panel.
HWY_INLINE void pack_panel(const float* HWY_RESTRICT b, int ldb, int rows, int columns, float* HWY_RESTRICT panel) {
  const DF df;
  for (int r = 0; r < rows; ++r) {
    int j = 0;
    for (; j + kLanes <= columns; j += kLanes) hn::StoreU(hn::LoadU(df, b + j), df, panel + j);
    for (; j < columns; ++j) panel[j] = b[j];
    b += ldb;
    panel += columns;
  }
}

void gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc, bool accumulate) {
  // Few rows read b once or twice and are better off without the copy.
  if (m <= 2 * kBlockRows || k == 0) return gemm_in_place(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  alignas(64) float panel[kPanelFloats];
  for (int j = 0; j < n; j += kPanelColumns) {
    const int columns = std::min(kPanelColumns, n - j);
    for (int l = 0; l < k; l += kPanelRows) {
      const int rows = std::min(kPanelRows, k - l);
      pack_panel(b + static_cast<ptrdiff_t>(l) * ldb + j, ldb, rows, columns, panel);
      gemm_in_place(m, columns, rows, a + l, lda, panel, columns, c + j, ldc, accumulate || l > 0);
    }
  }
}

/// exp(x); below the normal range 0, above kExpMax infinity, NaN stays NaN.
HWY_INLINE VF vector_exp(VF x) {
  const DF df;
  constexpr float kExpMin = -87.3365f, kExpMax = 88.0f;
  // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first short enough for exact products. Adding 1.5 * 2^23
  // rounds to an integer and leaves it in the low bits of the sum; 127 more make it the exponent bits of 2^n.
  constexpr float kRound = 12582912.0f + 127.0f;
  const VF rounded = hn::MulAdd(x, hn::Set(df, 1.44269504f), hn::Set(df, kRound));
  const VF n = hn::Sub(rounded, hn::Set(df, kRound));
  const VF high = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  const VF r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), high);
  // The polynomial of degree 5 through (0, 1) with the least relative error, 9.2e-8 (Lawson's iteration), in an order
  // that waits for three products in a row.
  const VF r2 = hn::Mul(r, r);
  const VF low = hn::MulAdd(r, hn::Set(df, 4.999914765e-1f), hn::Set(df, 9.999997020e-1f));
  const VF middle = hn::MulAdd(r, hn::Set(df, 4.189816117e-2f), hn::Set(df, 1.666763872e-1f));
  const VF p = hn::MulAdd(r2, hn::MulAdd(r2, hn::Set(df, 8.290272206e-3f), middle), low);
  const VF fraction = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const VF scaled = hn::Mul(fraction, hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(DU32(), rounded))));
  const VF bounded = hn::IfThenElse(hn::Gt(x, hn::Set(df, kExpMax)), hn::Set(df, kInfinity), scaled);
  return hn::IfThenElse(hn::Lt(x, hn::Set(df, kExpMin)), hn::Zero(df), bounded);
}

float exp_sum(float* scores, int n, float max) {
  const DF df;
  const VF shift = hn::Set(df, max);
  VF sum = hn::Zero(df);
  int t = 0;
  for (; t + kLanes <= n; t += kLanes) {
    const VF weight = vector_exp(hn::Sub(hn::LoadU(df, scores + t), shift));
    hn::StoreU(weight, df, scores + t);
    sum = hn::Add(sum, weight);
  }
  if (t < n) {
    const auto mask = hn::FirstN(df, static_cast<size_t>(n - t));
    const VF weight = vector_exp(hn::Sub(hn::MaskedLoad(mask, df, scores + t), shift));
    hn::BlendedStore(weight, mask, df, scores + t);
    sum = hn::Add(sum, hn::IfThenElseZero(mask, weight));
  }
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

float max(const float* x, int n) {
  const DF df;
  VF largest = hn::Set(df, -kInfinity);
  int i = 0;
  // x is never taken where it is NaN: the comparison is false.
  for (; i + kLanes <= n; i += kLanes) {
    const VF v = hn::LoadU(df, x + i);
    largest = hn::IfThenElse(hn::Gt(v, largest), v, largest);
  }
  float result = hn::GetLane(hn::MaxOfLanes(df, largest));
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

void transpose(int rows, int columns, const float* from, int from_stride, float* to, int to_stride) {
  const DU32x4 d;
  const int whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  const auto bits = [](auto* p) { return reinterpret_cast<uint32_t*>(const_cast<float*>(p)); };
  for (int c = 0; c < whole_columns; c += 4) {
    float* out = to + static_cast<ptrdiff_t>(c) * to_stride;
    for (int r = 0; r < whole_rows; r += 4) {
      const float* in = from + static_cast<ptrdiff_t>(r) * from_stride + c;
      VU32x4 row0 = hn::LoadU(d, bits(in)), row1 = hn::LoadU(d, bits(in + from_stride));
      VU32x4 row2 = hn::LoadU(d, bits(in + 2 * from_stride)), row3 = hn::LoadU(d, bits(in + 3 * from_stride));
      transpose4(row0, row1, row2, row3);
      hn::StoreU(row0, d, bits(out + r));
      hn::StoreU(row1, d, bits(out + r + to_stride));
      hn::StoreU(row2, d, bits(out + r + 2 * to_stride));
      hn::StoreU(row3, d, bits(out + r + 3 * to_stride));
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[static_cast<ptrdiff_t>(c) * to_stride + r] = from[static_cast<ptrdiff_t>(r) * from_stride + c];
    }
  }
}

void f32_to_f16(const float* src, uint16_t* dst, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(hn::LoadU(DF(), src + i), dst + i);
  for (; i < n; ++i) dst[i] = float_to_half(src[i]);
}

void f16_to_f32(const uint16_t* src, float* dst, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load_half(src + i), DF(), dst + i);
  for (; i < n; ++i) dst[i] = half_to_float(src[i]);
}

void i8_to_f32(const int8_t* src, float* dst, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load_bytes(src + i), DF(), dst + i);
  for (; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}

void turn(float* x, float* y, int n, float c0, float s0, const float* c, const float* s) {
  const DF df;
  const VF cos_a = hn::Set(df, c0), sin_a = hn::Set(df, s0);
  int t = 0;
  for (; t + kLanes <= n; t += kLanes) {
    const VF cos_b = hn::LoadU(df, c + t), sin_b = hn::LoadU(df, s + t);
    const VF cosine = hn::NegMulAdd(sin_a, sin_b, hn::Mul(cos_a, cos_b));
    const VF sine = hn::MulAdd(sin_a, cos_b, hn::Mul(cos_a, sin_b));
    const VF from_x = hn::LoadU(df, x + t), from_y = hn::LoadU(df, y + t);
    hn::StoreU(hn::NegMulAdd(from_y, sine, hn::Mul(from_x, cosine)), df, x + t);
    hn::StoreU(hn::MulAdd(from_x, sine, hn::Mul(from_y, cosine)), df, y + t);
  }
  for (; t < n; ++t) {
    const float cosine = c0 * c[t] - s0 * s[t], sine = s0 * c[t] + c0 * s[t];
    const float turned = x[t] * cosine - y[t] * sine;
    y[t] = x[t] * sine + y[t] * cosine;
    x[t] = turned;
  }
}

}  // namespace

void fill_dense(Kernels& table) {
  table.gemm = gemm;
  table.transpose = transpose;
  table.exp_sum = exp_sum;
  table.max = max;
  table.f32_to_f16 = f32_to_f16;
  table.f16_to_f32 = f16_to_f32;
  table.i8_to_f32 = i8_to_f32;
  table.turn = turn;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
