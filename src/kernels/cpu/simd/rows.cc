// Scores and weighted sums over row-major tiles (f16, fp8) and over loose f16 rows, in fp32. Rows are read once, in
// order, for all heads of the group.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/rows.cc"
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

/// Rows that are turned into fp32 at once: they stay in the first-level cache.
constexpr int kRowBlock = 16;
/// Heads whose sums over four rows fit the registers.
constexpr int kDotHeads = kWideRegisters ? 6 : 3;

/// An element of each kind of row, as a type of its own so that loads can be chosen by it.
enum class E4m3 : uint8_t {};

HWY_INLINE VF load_row(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load_row(const uint16_t* p) { return load_half(p); }
HWY_INLINE VF load_row(const E4m3* p) { return load_e4m3(reinterpret_cast<const uint8_t*>(p)); }

template <class Element>
HWY_INLINE void convert_rows(const Element* rows, int count, float* out) {
  for (int i = 0; i < count; i += kLanes) hn::Store(load_row(rows + i), DF(), out + i);
}

/// scores[h * stride + t] = q_h . row_t * (scale ? scale[t] : 1), t in [0, n). q: [kHeads][head_dim].
template <int kHeads, class Element>
HWY_INLINE void dot_rows(const Element* HWY_RESTRICT rows, int n, int head_dim, const float* HWY_RESTRICT q, int stride,
                         const float* scale, float* scores) {
  const DF df;
  const DF4 d4;
  for (int t = 0; t < n; t += 4) {
    const Element* row[4];  // rows past the end repeat the last one
    for (int i = 0; i < 4; ++i) row[i] = rows + static_cast<ptrdiff_t>(std::min(t + i, n - 1)) * head_dim;
    VF sum[kHeads][4];
    for (int h = 0; h < kHeads; ++h) {
      for (int i = 0; i < 4; ++i) sum[h][i] = hn::Zero(df);
    }
    for (int d = 0; d < head_dim; d += kLanes) {
      VF query[kHeads];
      for (int h = 0; h < kHeads; ++h) query[h] = hn::LoadU(df, q + h * head_dim + d);
      for (int i = 0; i < 4; ++i) {
        const VF k = load_row(row[i] + d);
        for (int h = 0; h < kHeads; ++h) sum[h][i] = hn::MulAdd(k, query[h], sum[h][i]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      VF4 dots = sum_lanes4(sum[h][0], sum[h][1], sum[h][2], sum[h][3]);
      float* out = scores + h * stride + t;
      if (t + 4 <= n) {
        if (scale != nullptr) dots = hn::Mul(dots, hn::LoadU(d4, scale + t));
        hn::StoreU(dots, d4, out);
      } else {
        alignas(16) float rest[4];
        hn::Store(dots, d4, rest);
        for (int i = 0; t + i < n; ++i) out[i] = scale != nullptr ? rest[i] * scale[t + i] : rest[i];
      }
    }
  }
}

template <class Element>
HWY_INLINE void dot_heads(int heads, const Element* rows, int n, int head_dim, const float* q, int stride,
                          const float* scale, float* scores) {
  switch (heads) {
    case 1:
      return dot_rows<1>(rows, n, head_dim, q, stride, scale, scores);
    case 2:
      return dot_rows<2>(rows, n, head_dim, q, stride, scale, scores);
    case 3:
      return dot_rows<3>(rows, n, head_dim, q, stride, scale, scores);
    default:
      break;
  }
  if constexpr (kDotHeads > 3) {
    switch (heads) {
      case 4:
        return dot_rows<4>(rows, n, head_dim, q, stride, scale, scores);
      case 5:
        return dot_rows<5>(rows, n, head_dim, q, stride, scale, scores);
      default:
        return dot_rows<6>(rows, n, head_dim, q, stride, scale, scores);
    }
  }
}

template <class Element>
HWY_NOINLINE void row_scores(const Element* rows, int n, const QueryGroup& q, int stride, const float* scale,
                             float* scores) {
  const int passes = (q.group + kDotHeads - 1) / kDotHeads;
  if (passes == 1) return dot_heads(q.group, rows, n, q.head_dim, q.rows, stride, scale, scores);
  alignas(64) float block[kRowBlock * format::kMaxHeadDim];
  for (int t = 0; t < n; t += kRowBlock) {
    const int count = std::min(kRowBlock, n - t);
    convert_rows(rows + static_cast<ptrdiff_t>(t) * q.head_dim, count * q.head_dim, block);
    for (int pass = 0, h = 0; pass < passes; ++pass) {
      const int heads = (q.group - h) / (passes - pass);
      dot_heads(heads, static_cast<const float*>(block), count, q.head_dim, q.rows + h * q.head_dim, stride,
                scale != nullptr ? scale + t : nullptr, scores + h * stride + t);
      h += heads;
    }
  }
}

/// acc += p . rows; p: [group] rows of `stride`.
template <class Element>
HWY_NOINLINE void row_accumulate(const Element* rows, int n, int head_dim, int group, int stride, const float* p,
                                 float* acc) {
  alignas(64) float block[kRowBlock * format::kMaxHeadDim];
  for (int t = 0; t < n; t += kRowBlock) {
    const int count = std::min(kRowBlock, n - t);
    convert_rows(rows + static_cast<ptrdiff_t>(t) * head_dim, count * head_dim, block);
    gemm_in_place(group, head_dim, count, p + t, stride, block, head_dim, acc, head_dim, true);
  }
}

void f16_scores(const uint16_t* k, int n, const QueryGroup& q, int stride, float* scores) {
  row_scores(k, n, q, stride, nullptr, scores);
}

void f16_accumulate(const uint16_t* v, int n, int head_dim, int group, int stride, const float* p, float* acc) {
  row_accumulate(v, n, head_dim, group, stride, p, acc);
}

void k_scores_f16(const uint8_t* tile, const QueryGroup& q, float* scores) {
  row_scores(reinterpret_cast<const uint16_t*>(tile), kTileTokens, q, kTileTokens, nullptr, scores);
}

void v_accumulate_f16(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  row_accumulate(reinterpret_cast<const uint16_t*>(tile), kTileTokens, head_dim, group, kTileTokens, p, acc);
}

/// The scale of each token of an fp8 tile.
HWY_INLINE void load_fp8_scales(const uint8_t* tile, int head_dim, float* scales) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(tile + kTileTokens * head_dim);
  for (int t = 0; t < kTileTokens; t += kLanes) hn::Store(load_half(halves + t), DF(), scales + t);
}

void k_scores_fp8(const uint8_t* tile, const QueryGroup& q, float* scores) {
  alignas(64) float scales[kTileTokens];
  load_fp8_scales(tile, q.head_dim, scales);
  row_scores(reinterpret_cast<const E4m3*>(tile), kTileTokens, q, kTileTokens, scales, scores);
}

void v_accumulate_fp8(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  const DF df;
  alignas(64) float scales[kTileTokens];
  alignas(64) float weights[kMaxGroup * kTileTokens];
  load_fp8_scales(tile, head_dim, scales);
  for (int i = 0; i < group * kTileTokens; i += kLanes) {
    hn::Store(hn::Mul(hn::LoadU(df, p + i), hn::Load(df, scales + i % kTileTokens)), df, weights + i);
  }
  row_accumulate(reinterpret_cast<const E4m3*>(tile), kTileTokens, head_dim, group, kTileTokens, weights, acc);
}

}  // namespace

void fill_rows(Kernels& table) {
  table.k_scores[static_cast<size_t>(KCodec::kF16)] = k_scores_f16;
  table.k_scores[static_cast<size_t>(KCodec::kFp8)] = k_scores_fp8;
  table.v_accumulate[static_cast<size_t>(VCodec::kF16)] = v_accumulate_f16;
  table.v_accumulate[static_cast<size_t>(VCodec::kFp8)] = v_accumulate_fp8;
  table.f16_scores = f16_scores;
  table.f16_accumulate = f16_accumulate;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
