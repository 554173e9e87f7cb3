// The fp32 matrix micro-kernel, shared by gemm and by the weighted sums of row-major tiles. Included once per target.

#if defined(VARVE_SIMD_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_SIMD_GEMM_INL_H
#undef VARVE_SIMD_GEMM_INL_H
#else
#define VARVE_SIMD_GEMM_INL_H
#endif

#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {

/// Rows of c that one pass over k serves.
inline constexpr int kBlockRows = 6;

/// Vectors of a row of c that the registers hold beside `kRows` rows.
template <int kRows>
inline constexpr int kBlockVectors = kWideRegisters ? (kRows <= 3 ? 8 : 4)
                                                    : (kRows == 1   ? 8
                                                       : kRows <= 3 ? 4
                                                                    : 2);

/// A whole number of vectors of kRows rows of c. b points at their first column.
template <int kRows, int kVectors>
HWY_INLINE void gemm_columns(int k, const float* HWY_RESTRICT a, int lda, const float* HWY_RESTRICT b, int ldb,
                             float* HWY_RESTRICT c, int ldc, bool accumulate) {
  const DF df;
  VF sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(df);
  }
  for (int l = 0; l < k; ++l) {
    VF row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(df, b + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const VF factor = hn::Set(df, a[static_cast<ptrdiff_t>(i) * lda]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(factor, row[v], sum[i][v]);
    }
    ++a;
    b += ldb;
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + static_cast<ptrdiff_t>(i) * ldc + v * kLanes;
      hn::StoreU(accumulate ? hn::Add(sum[i][v], hn::LoadU(df, out)) : sum[i][v], df, out);
    }
  }
}

/// The last `n` < kLanes columns.
template <int kRows>
HWY_INLINE void gemm_tail(int n, int k, const float* HWY_RESTRICT a, int lda, const float* HWY_RESTRICT b, int ldb,
                          float* HWY_RESTRICT c, int ldc, bool accumulate) {
  const DF df;
  const auto mask = hn::FirstN(df, static_cast<size_t>(n));
  VF sum[kRows];
  for (int i = 0; i < kRows; ++i) sum[i] = hn::Zero(df);
  for (int l = 0; l < k; ++l) {
    const VF row = hn::MaskedLoad(mask, df, b + static_cast<ptrdiff_t>(l) * ldb);
    for (int i = 0; i < kRows; ++i) {
      sum[i] = hn::MulAdd(hn::Set(df, a[static_cast<ptrdiff_t>(i) * lda + l]), row, sum[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    float* out = c + static_cast<ptrdiff_t>(i) * ldc;
    hn::BlendedStore(accumulate ? hn::Add(sum[i], hn::MaskedLoad(mask, df, out)) : sum[i], mask, df, out);
  }
}

template <int kRows>
HWY_INLINE void gemm_row_block(int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
                               bool accumulate) {
  constexpr int kVectors = kBlockVectors<kRows>;
  int j = 0;
  for (; j + kVectors * kLanes <= n; j += kVectors * kLanes) {
    gemm_columns<kRows, kVectors>(k, a, lda, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j + kLanes <= n; j += kLanes) gemm_columns<kRows, 1>(k, a, lda, b + j, ldb, c + j, ldc, accumulate);
  if (j < n) gemm_tail<kRows>(n - j, k, a, lda, b + j, ldb, c + j, ldc, accumulate);
}

/// c (+)= a . b, b read in place. The rows are cut into blocks of equal size.
HWY_NOINLINE inline void gemm_in_place(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c,
                                       int ldc, bool accumulate) {
  const int blocks = (m + kBlockRows - 1) / kBlockRows;
  for (int block = 0, i = 0; block < blocks; ++block) {
    const int rows = (m - i) / (blocks - block);
    const float* a_rows = a + static_cast<ptrdiff_t>(i) * lda;
    float* c_rows = c + static_cast<ptrdiff_t>(i) * ldc;
    switch (rows) {
      case 1:
        gemm_row_block<1>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
      case 2:
        gemm_row_block<2>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
      case 3:
        gemm_row_block<3>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
      case 4:
        gemm_row_block<4>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
      case 5:
        gemm_row_block<5>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
      default:
        gemm_row_block<6>(n, k, a_rows, lda, b, ldb, c_rows, ldc, accumulate);
        break;
    }
    i += rows;
  }
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET

#endif  // VARVE_SIMD_GEMM_INL_H
