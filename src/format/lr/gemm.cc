#include <algorithm>
#include <cstddef>

#include "format/lr/encode.h"

namespace varve::format {

void plain_gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
                bool accumulate) {
  for (int i = 0; i < m; ++i) {
    float* row = c + static_cast<ptrdiff_t>(i) * ldc;
    if (!accumulate) std::fill_n(row, n, 0.0f);
    for (int l = 0; l < k; ++l) {
      const float factor = a[static_cast<ptrdiff_t>(i) * lda + l];
      const float* from = b + static_cast<ptrdiff_t>(l) * ldb;
      for (int j = 0; j < n; ++j) row[j] += factor * from[j];
    }
  }
}

}  // namespace varve::format
