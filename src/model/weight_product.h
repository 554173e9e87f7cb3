#pragma once
// Products of many activation rows with quantised weights in fp32: panels of weight rows are decoded and multiplied, so
// that a weight is decoded once per step instead of once per row (docs/adr/0013-prefill-weight-products.md).

#include <ggml.h>

#include <cstddef>
#include <string_view>

#include "base/memory.h"
#include "kernels/cpu/kernels.h"
#include "varve/status.h"

namespace varve::model {

enum class WeightGemm {
  kAuto,  ///< per tensor, what the table of WeightProduct::takes says
  kGgml,  ///< ggml's kernels, which round activations to 8 bits, for everything
  /// Every matrix in plain memory that is not fp32 already, fast or not: no activation is rounded, so that a small
  /// change of the input is a small change of the output. Matrices that ggml repacked (LoadOptions::repack) stay with
  /// ggml.
  kFp32,
};

/// "auto", "ggml" or "fp32"; anything else is kInvalidArgument and names the three.
Result<WeightGemm> parse_weight_gemm(std::string_view name);

/// y[rows][out] = x[rows][in] . w[out][in]^T, summed in fp32 over `in` in ascending order, in blocks whose ends are
/// fixed. From kLeastRows on, an element of y depends on its row of x and its row of w alone, bit for bit: not on how
/// many other rows there are, not on the number of threads. NaN and infinity follow IEEE arithmetic on the decoded
/// weights.
class WeightProduct {
 public:
  /// Below it decoding costs more than it saves. Above 12, from which on kernels::Kernels::gemm sums every row alike.
  static constexpr int kLeastRows = 64;
  /// A panel is kPanelRows weight rows by kPanelDepth of their elements, a multiple of every block size.
  static constexpr int kPanelRows = 64, kPanelDepth = 256;
  /// Rows of w that are decoded before they are transposed into the panel; threads split w in whole groups.
  static constexpr int kGroupRows = 16;
  /// Scratch of one thread, whatever the model: the panel and one decoded group.
  static constexpr size_t kBytesPerThread = sizeof(float) * kPanelDepth * (kPanelRows + kGroupRows);

  /// threads: the most that will call run(). `kernels` outlives the object.
  WeightProduct(WeightGemm choice, const kernels::Kernels& kernels, int threads);
  /// kResourceExhausted when the scratch was refused.
  Status check() const;

  /// Whether this class multiplies w with kLeastRows rows or more faster than ggml: a table over types, no measurement,
  /// so that results do not depend on a clock. Never a matrix that ggml repacked; with kAuto never over the scalar
  /// kernels; with kFp32 whatever can be decoded.
  bool takes(const ggml_tensor* w) const;
  /// This thread's columns [begin, end) of y, whole groups but for the last.
  struct Share {
    int begin, end;
  };
  static Share share(int out, int thread, int threads);
  /// Writes this thread's share of y. w: a matrix of a type with ggml_type_traits::to_float in plain memory. y has rows
  /// of ne[1] of w. Allocates nothing.
  void run(const ggml_tensor* w, const float* x, int rows, float* y, int thread, int threads);
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  WeightGemm choice_;
  const kernels::Kernels& kernels_;
  size_t scratch_bytes_ = 0;
  AlignedBuffer scratch_;  ///< kBytesPerThread for each thread
};

}  // namespace varve::model
