// Scores and weighted sums over row-major tiles (f16, fp8) and over loose f16 rows, in fp32. Rows are read once, in
// order, for all heads of the group.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/rows.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <type_traits>

#include "hwy/cache_control.h"
#include "kernels/cpu/simd/gemm-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

/// Rows that are turned into fp32 at once: they stay in the first-level cache.
constexpr int kRowBlock = 12;

/// Fetches what the caller reads next, in equal parts between the steps of a pass: a burst of all lines would fill the
/// core's miss buffers.
class FetchLines {
 public:
  HWY_INLINE FetchLines(const Ahead& ahead, int steps)
      : at_(ahead.from), end_(ahead.from + ahead.bytes), part_(ahead.bytes / static_cast<size_t>(steps) + 1) {}
  HWY_INLINE void part() {
    const uint8_t* const stop = std::min(at_ + part_, end_);
    for (; at_ < stop; at_ += 64) hwy::Prefetch(at_);
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  size_t part_;
};

/// Heads that one pass over the rows serves.
constexpr int kDotHeads = kWideRegisters ? 8 : 6;

/// An element of each kind of row, as a type of its own so that loads can be chosen by it.
enum class E4m3 : uint8_t {};

/// Elements as fp32, kRowParts vectors of them; E4M3 divided by kE4m3Scale.
HWY_INLINE void load_row(const float* p, VF* out) { *out = hn::LoadU(DF(), p); }
HWY_INLINE void load_row(const uint16_t* p, VF* out) { *out = load_half(p); }
HWY_INLINE void load_row(const E4m3* p, VF* out) { load_e4m3(reinterpret_cast<const uint8_t*>(p), out); }

/// Vectors that a row gives at once: E4M3 codes are converted by sixteen.
template <class Element>
constexpr int kRowParts = std::is_same_v<Element, E4m3> ? kParts : 1;

/// Rows that a pass takes at once, so that the registers hold a sum for each row and head, and the rows themselves.
template <int kHeads, class Element>
constexpr int dot_rows_at_once() {
  if (kWideRegisters) return kHeads <= 6 ? 4 : kHeads == 7 ? 3 : 2;
  if (kRowParts<Element> == 1) return kHeads <= 3 ? 4 : kHeads == 4 ? 3 : 2;
  return kHeads == 1 ? 4 : kHeads == 2 ? 3 : kHeads <= 5 ? 2 : 1;
}

/// Distance of two heads' queries: constant, so that one pointer serves all heads, and no multiple of a cache way.
constexpr int kQueryStride = format::kMaxHeadDim + 16;

/// Place of (row i, head h) among the sums of a block: four rows of a head are neighbours and leave as one vector.
template <int kHeads, int kRows>
constexpr int sum_index(int i, int h) {
  return kRows == 4 ? h * 4 + i : i * kHeads + h;
}

/// dots[sum_index(i, h)] = q_h . row_i for kRows rows. q: [kHeads] rows of kQueryStride. dots: multiple of four floats.
template <int kHeads, int kRows, class Element>
HWY_INLINE void dot_block(const Element* const rows[kRows], int head_dim, const float* HWY_RESTRICT q,
                          float* HWY_RESTRICT dots) {
  const DF df;
  constexpr int kSums = kRows * kHeads;
  constexpr int kPadded = (kSums + 3) / 4 * 4;
  constexpr int kRowVectors = kRowParts<Element>;
  constexpr int kStep = kRowVectors * kLanes;
  VF sum[kPadded];
  for (VF& s : sum) s = hn::Zero(df);
  // The smaller side stays in registers, the other passes by.
  for (int d = 0; d < head_dim; d += kStep) {
    const auto load_query = [&](int h, int j) HWY_ATTR { return hn::Load(df, q + h * kQueryStride + d + j * kLanes); };
    if constexpr (kHeads < kRows) {
      VF query[kHeads][kRowVectors];
      for (int h = 0; h < kHeads; ++h) {
        for (int j = 0; j < kRowVectors; ++j) query[h][j] = load_query(h, j);
      }
      for (int i = 0; i < kRows; ++i) {
        VF row[kRowVectors];
        load_row(rows[i] + d, row);
        for (int j = 0; j < kRowVectors; ++j) {
          for (int h = 0; h < kHeads; ++h) {
            VF& s = sum[sum_index<kHeads, kRows>(i, h)];
            s = hn::MulAdd(row[j], query[h][j], s);
          }
        }
      }
    } else {
      VF row[kRows][kRowVectors];
      for (int i = 0; i < kRows; ++i) load_row(rows[i] + d, row[i]);
      for (int j = 0; j < kRowVectors; ++j) {
        for (int h = 0; h < kHeads; ++h) {
          const VF query = load_query(h, j);
          for (int i = 0; i < kRows; ++i) {
            VF& s = sum[sum_index<kHeads, kRows>(i, h)];
            s = hn::MulAdd(row[i][j], query, s);
          }
        }
      }
    }
  }
  for (int i = 0; i < kPadded; i += 4) {
    hn::Store(sum_lanes4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]), DF4(), dots + i);
  }
}

template <class Element>
HWY_INLINE void convert_rows(const Element* rows, int count, float* out) {
  constexpr int kStep = kRowParts<Element> * kLanes;
  for (int i = 0; i < count; i += kStep) {
    VF values[kRowParts<Element>];
    load_row(rows + i, values);
    for (int j = 0; j < kRowParts<Element>; ++j) hn::Store(values[j], DF(), out + i + j * kLanes);
  }
}

/// scores[h * stride + t] = q_h . row_t * (scale ? scale[t] : 1), t in [0, n). q: [kHeads] rows of kQueryStride.
template <int kHeads, class Element>
HWY_INLINE void dot_rows(const Element* HWY_RESTRICT rows, int n, int head_dim, const float* HWY_RESTRICT q, int stride,
                         const float* scale, float* scores, const Ahead& ahead) {
  const DF4 d4;
  constexpr int kRows = dot_rows_at_once<kHeads, Element>();
  alignas(16) float dots[(kRows * kHeads + 3) / 4 * 4];
  FetchLines fetch(ahead, (n + kRows - 1) / kRows);
  for (int t = 0; t < n; t += kRows) {
    fetch.part();
    const Element* row[kRows];  // rows past the end repeat the last one
    for (int i = 0; i < kRows; ++i) row[i] = rows + static_cast<ptrdiff_t>(std::min(t + i, n - 1)) * head_dim;
    dot_block<kHeads, kRows>(row, head_dim, q, dots);
    if (kRows == 4 && t + 4 <= n) {
      const VF4 factor = scale != nullptr ? hn::LoadU(d4, scale + t) : hn::Set(d4, 1.0f);
      for (int h = 0; h < kHeads; ++h) {
        hn::StoreU(hn::Mul(hn::Load(d4, dots + h * 4), factor), d4, scores + h * stride + t);
      }
      continue;
    }
    for (int i = 0; i < std::min(kRows, n - t); ++i) {
      const float factor = scale != nullptr ? scale[t + i] : 1.0f;
      for (int h = 0; h < kHeads; ++h) {
        scores[h * stride + t + i] = dots[sum_index<kHeads, kRows>(i, h)] * factor;
      }
    }
  }
}

template <class Element>
HWY_INLINE void dot_heads(int heads, const Element* rows, int n, int head_dim, const float* q, int stride,
                          const float* scale, float* scores, const Ahead& ahead) {
  switch (heads) {
    case 1: return dot_rows<1>(rows, n, head_dim, q, stride, scale, scores, ahead);
    case 2: return dot_rows<2>(rows, n, head_dim, q, stride, scale, scores, ahead);
    case 3: return dot_rows<3>(rows, n, head_dim, q, stride, scale, scores, ahead);
    case 4: return dot_rows<4>(rows, n, head_dim, q, stride, scale, scores, ahead);
    case 5: return dot_rows<5>(rows, n, head_dim, q, stride, scale, scores, ahead);
    case 6: return dot_rows<6>(rows, n, head_dim, q, stride, scale, scores, ahead);
    default: break;
  }
  if constexpr (kDotHeads > 6) {
    if (heads == 7) return dot_rows<7>(rows, n, head_dim, q, stride, scale, scores, ahead);
    dot_rows<8>(rows, n, head_dim, q, stride, scale, scores, ahead);
  }
}

template <class Element>
HWY_NOINLINE void row_scores(const Element* rows, int n, const QueryGroup& q, int stride, const float* scale,
                             float* scores) {
  alignas(64) float query[kMaxGroup * kQueryStride];
  for (int h = 0; h < q.group; ++h) std::copy_n(q.rows + h * q.head_dim, q.head_dim, query + h * kQueryStride);
  const int passes = (q.group + kDotHeads - 1) / kDotHeads;
  if (passes == 1) return dot_heads(q.group, rows, n, q.head_dim, query, stride, scale, scores, q.ahead);
  FetchLines fetch(q.ahead, (n + kRowBlock - 1) / kRowBlock);
  alignas(64) float block[kRowBlock * format::kMaxHeadDim];
  for (int t = 0; t < n; t += kRowBlock) {
    const int count = std::min(kRowBlock, n - t);
    fetch.part();
    convert_rows(rows + static_cast<ptrdiff_t>(t) * q.head_dim, count * q.head_dim, block);
    for (int pass = 0, h = 0; pass < passes; ++pass) {
      const int heads = (q.group - h) / (passes - pass);
      dot_heads(heads, static_cast<const float*>(block), count, q.head_dim, query + h * kQueryStride, stride,
                scale != nullptr ? scale + t : nullptr, scores + h * stride + t, {});
      h += heads;
    }
  }
}

/// acc += p . rows; p: [group] rows of `stride`.
template <class Element>
HWY_NOINLINE void row_accumulate(const Element* rows, int n, int head_dim, int group, int stride, const float* p,
                                 float* acc, const Ahead& ahead) {
  alignas(64) float block[kRowBlock * format::kMaxHeadDim];
  FetchLines fetch(ahead, (n + kRowBlock - 1) / kRowBlock);
  for (int t = 0; t < n; t += kRowBlock) {
    const int count = std::min(kRowBlock, n - t);
    fetch.part();
    convert_rows(rows + static_cast<ptrdiff_t>(t) * head_dim, count * head_dim, block);
    gemm_in_place(group, head_dim, count, p + t, stride, block, head_dim, acc, head_dim, true);
  }
}

void f16_scores(const uint16_t* k, int n, const QueryGroup& q, int stride, float* scores) {
  row_scores(k, n, q, stride, nullptr, scores);
}

void f16_accumulate(const uint16_t* v, int n, int head_dim, int group, int stride, const float* p, float* acc) {
  row_accumulate(v, n, head_dim, group, stride, p, acc, {});
}

void k_scores_f16(const uint8_t* tile, const QueryGroup& q, float* scores) {
  row_scores(reinterpret_cast<const uint16_t*>(tile), kTileTokens, q, kTileTokens, nullptr, scores);
}

void v_accumulate_ahead_f16(const uint8_t* tile, int head_dim, int group, const float* p, float* acc,
                            const Ahead& ahead) {
  row_accumulate(reinterpret_cast<const uint16_t*>(tile), kTileTokens, head_dim, group, kTileTokens, p, acc, ahead);
}

void v_accumulate_f16(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  v_accumulate_ahead_f16(tile, head_dim, group, p, acc, {});
}

/// The scale of each token of an fp8 tile, for values as load_e4m3 gives them.
HWY_INLINE void load_fp8_scales(const uint8_t* tile, int head_dim, float* scales) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(tile + kTileTokens * head_dim);
  for (int t = 0; t < kTileTokens; t += kLanes) {
    hn::Store(hn::Mul(load_half(halves + t), hn::Set(DF(), kE4m3Scale)), DF(), scales + t);
  }
}

void k_scores_fp8(const uint8_t* tile, const QueryGroup& q, float* scores) {
  alignas(64) float scales[kTileTokens];
  load_fp8_scales(tile, q.head_dim, scales);
  row_scores(reinterpret_cast<const E4m3*>(tile), kTileTokens, q, kTileTokens, scales, scores);
}

void v_accumulate_ahead_fp8(const uint8_t* tile, int head_dim, int group, const float* p, float* acc,
                            const Ahead& ahead) {
  const DF df;
  alignas(64) float scales[kTileTokens];
  alignas(64) float weights[kMaxGroup * kTileTokens];
  load_fp8_scales(tile, head_dim, scales);
  for (int i = 0; i < group * kTileTokens; i += kLanes) {
    hn::Store(hn::Mul(hn::LoadU(df, p + i), hn::Load(df, scales + i % kTileTokens)), df, weights + i);
  }
  row_accumulate(reinterpret_cast<const E4m3*>(tile), kTileTokens, head_dim, group, kTileTokens, weights, acc, ahead);
}

void v_accumulate_fp8(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  v_accumulate_ahead_fp8(tile, head_dim, group, p, acc, {});
}

}  // namespace

void fill_rows(Kernels& table) {
  table.k_scores[static_cast<size_t>(KCodec::kF16)] = k_scores_f16;
  table.k_scores[static_cast<size_t>(KCodec::kFp8)] = k_scores_fp8;
  table.v_accumulate[static_cast<size_t>(VCodec::kF16)] = v_accumulate_f16;
  table.v_accumulate[static_cast<size_t>(VCodec::kFp8)] = v_accumulate_fp8;
  table.v_accumulate_ahead[static_cast<size_t>(VCodec::kF16)] = v_accumulate_ahead_f16;
  table.v_accumulate_ahead[static_cast<size_t>(VCodec::kFp8)] = v_accumulate_ahead_fp8;
  table.f16_scores = f16_scores;
  table.f16_accumulate = f16_accumulate;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
