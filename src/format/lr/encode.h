#pragma once
// Turns the rows of a page into a low-rank block: delta from the anchor, balanced, randomised SVD, choice of exact
// rows.

#include <span>
#include <vector>

#include "format/lr/block.h"

namespace varve::format {

/// A span of tokens that is kept whole or not at all, page offsets.
struct TokenRun {
  int begin = 0, end = 0;
  bool asked = false;  ///< the query asks for it: before all others
  bool operator==(const TokenRun&) const = default;
};

/// What the content of a page says about which rows should be exact. Made from the tokens' texts; see content/traits.h.
struct TokenTraits {
  std::vector<float> boost;    ///< [tokens], finite, >= 0: multiplies a row's error; 1: nothing special; empty: all 1
  std::vector<TokenRun> runs;  ///< disjoint, ascending
  float rank_boost = 1.0f;     ///< of the page's rank below the format's ceiling, for digits and formulas
};

struct BlockReport {
  int rank = 0;
  int rows = 0;
  double retained_energy = 0;
  int rows_of_runs = 0;   ///< exact rows that belong to a run
  int runs_left_out = 0;  ///< runs that did not fit the budget
  int rows_lost = 0;      ///< rows with NaN or infinity; all rows when the block could not hold them
};

/// c[m][n] (+)= a[m][k] . b[k][n], fp32 row-major with leading dimensions, as Kernels::gemm: this layer knows no
/// kernels. The bytes of a block depend on the order in which it sums; what they decode to hardly does.
using Gemm = void (*)(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
                      bool accumulate);
/// A Gemm in portable C++, several times slower than a kernel.
void plain_gemm(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
                bool accumulate);

/// Scratch of encode_block; small vectors and the SVD's small matrices are not in it.
size_t encode_scratch_floats(const BlockShape& shape, const LowRankOptions& options);

/// Encodes one block. k, v: [tokens][kv_heads * head_dim] fp32, keys in the block's frame. scratch:
/// encode_scratch_floats. block: block_bytes(shape), all of it written.
/// Rows [0, skip) are read from elsewhere (sinks): they take no exact row and no weight in the SVD, and may decode to
/// anything. Deterministic by seed. A page whose rows are all equal has rank 0 and decodes exactly.
/// A row with NaN, infinity or more than f16 can hold is lost: it is kept exact before all others, at the cost of rank,
/// and decodes to NaN per KV head and side that holds it (kF16 keeps elements as they are). Other rows do not notice. A
/// block that cannot hold all its lost rows even at rank 0 decodes to NaN as a whole.
/// Arguments that check_block refuses must not get here; skip is at most kMaxSinkTokens.
BlockReport encode_block(const BlockShape& shape, const LowRankOptions& options, const TokenTraits& traits, int skip,
                         const float* k, const float* v, Gemm gemm, float* scratch, uint8_t* block);

}  // namespace varve::format
