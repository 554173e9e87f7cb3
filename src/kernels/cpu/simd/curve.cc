// The curve of a rotary centre over a tile (kernels.h, CurveTable).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/curve.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "kernels/cpu/simd/gemm-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

constexpr int kHalfTile = kTileTokens / 2;
constexpr int kMaxRows = format::kMaxHeadDim / 2 + kCurvePowers;

void curve_terms(const float* q, const float* u, int head_dim, int pairs, bool neox, float* terms) {
  const DF df;
  const int padded = curve_padded(pairs);
  float* a = terms;
  float* b = terms + padded;
  int p = 0;
  for (; p + kLanes <= pairs; p += kLanes) {
    VF q_first, q_second, u_first, u_second;
    if (neox) {
      q_first = hn::LoadU(df, q + p), q_second = hn::LoadU(df, q + p + pairs);
      u_first = hn::LoadU(df, u + p), u_second = hn::LoadU(df, u + p + pairs);
    } else {
      hn::LoadInterleaved2(df, q + 2 * p, q_first, q_second);
      hn::LoadInterleaved2(df, u + 2 * p, u_first, u_second);
    }
    hn::StoreU(hn::MulAdd(q_first, u_first, hn::Mul(q_second, u_second)), df, a + p);
    hn::StoreU(hn::MulSub(q_second, u_first, hn::Mul(q_first, u_second)), df, b + p);
  }
  for (; p < pairs; ++p) {
    const int i = neox ? p : 2 * p, j = neox ? p + pairs : 2 * p + 1;
    a[p] = q[i] * u[i] + q[j] * u[j];
    b[p] = q[j] * u[i] - q[i] * u[j];
  }
  for (; p < padded; ++p) a[p] = b[p] = 0;
  float constant = 0;
  for (int d = 2 * pairs; d < head_dim; ++d) constant += q[d] * u[d];
  terms[2 * padded] = constant;
}

/// One head's coefficients, turned to the middle of the tile: of the fast pairs as they are, of the others what they
/// give to each power. even, odd: [table.fast + kCurvePowers].
HWY_INLINE void turn_terms(const CurveTable& table, const float* terms, float* even, float* odd) {
  static_assert(kCurvePowers == 4);
  const DF df;
  const int padded = curve_padded(table.pairs), slow = padded - table.fast;
  const auto turn = [&](int p, VF& a, VF& b) HWY_ATTR {
    const VF a0 = hn::LoadU(df, terms + p), b0 = hn::LoadU(df, terms + padded + p);
    const VF c = hn::LoadU(df, table.cos + p), s = hn::LoadU(df, table.sin + p);
    a = hn::MulAdd(a0, c, hn::Mul(b0, s));
    b = hn::MulSub(b0, c, hn::Mul(a0, s));
  };
  VF a, b;
  for (int p = 0; p < table.fast; p += kLanes) {
    turn(p, a, b);
    hn::StoreU(a, df, even + p);
    hn::StoreU(b, df, odd + p);
  }
  VF even_sum[kCurvePowers], odd_sum[kCurvePowers];
  for (int k = 0; k < kCurvePowers; ++k) even_sum[k] = odd_sum[k] = hn::Zero(df);
  for (int p = 0; p < slow; p += kLanes) {
    turn(table.fast + p, a, b);
    for (int k = 0; k < kCurvePowers; ++k) {
      even_sum[k] = hn::MulAdd(a, hn::LoadU(df, table.even_powers + k * slow + p), even_sum[k]);
      odd_sum[k] = hn::MulAdd(b, hn::LoadU(df, table.odd_powers + k * slow + p), odd_sum[k]);
    }
  }
  hn::StoreU(sum_lanes4(even_sum[0], even_sum[1], even_sum[2], even_sum[3]), DF4(), even + table.fast);
  hn::StoreU(sum_lanes4(odd_sum[0], odd_sum[1], odd_sum[2], odd_sum[3]), DF4(), odd + table.fast);
  even[table.fast] += terms[2 * padded];
}

void add_curve(const CurveTable& table, int group, const float* terms, float* scores) {
  const DF df;
  alignas(64) float even_terms[kMaxGroup * kMaxRows], odd_terms[kMaxGroup * kMaxRows];
  alignas(64) float even[kMaxGroup * kHalfTile], odd[kMaxGroup * kHalfTile];
  const int rows = table.fast + kCurvePowers;
  for (int g = 0; g < group; ++g) {
    turn_terms(table, terms + g * curve_term_floats(table.pairs), even_terms + g * rows, odd_terms + g * rows);
  }
  gemm_in_place(group, kHalfTile, rows, even_terms, rows, table.even, kHalfTile, even, kHalfTile, false);
  gemm_in_place(group, kHalfTile, rows, odd_terms, rows, table.odd, kHalfTile, odd, kHalfTile, false);
  for (int i = 0; i < group * kHalfTile; i += kLanes) {
    const int j = i % kHalfTile;
    float* middle = scores + i / kHalfTile * kTileTokens + kHalfTile;
    float* left = middle - kLanes - j;
    float* right = middle + j;
    const VF e = hn::Load(df, even + i), o = hn::Load(df, odd + i);
    hn::StoreU(hn::Add(hn::LoadU(df, right), hn::Add(e, o)), df, right);
    hn::StoreU(hn::Add(hn::LoadU(df, left), hn::Reverse(df, hn::Sub(e, o))), df, left);
  }
}

}  // namespace

void fill_curve(Kernels& table) {
  table.curve_terms = curve_terms;
  table.add_curve = add_curve;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
