#pragma once
// The seeded rotation that makes coordinates Gaussian before scalar coding: y = H.S.x, with S random signs and H a
// normalised Hadamard matrix of the head_dim (Sylvester for powers of two; H12 (x) H8 = 96, H20 (x) H4 = 80,
// H12 (x) H16 = 192). Orthonormal: the inverse is S.H^T. fp32 butterflies throughout.

#include <cstdint>
#include <vector>

#include "varve/status.h"

namespace varve::format {

class Rotation {
 public:
  /// Signs come from `seed` and `head_dim` alone. kUnsupported for a head_dim without an exact Hadamard matrix.
  static Result<Rotation> create(int head_dim, uint64_t seed);

  int head_dim() const { return head_dim_; }
  uint64_t seed() const { return seed_; }
  /// [head_dim] of +-1.
  const float* signs() const { return signs_.data(); }

  /// In place on `n` rows of head_dim floats. Scalar reference; kernels carry their own fast version.
  void forward(float* rows, int n) const;
  void inverse(float* rows, int n) const;

 private:
  int head_dim_ = 0;
  uint64_t seed_ = 0;
  std::vector<float> signs_;
};

}  // namespace varve::format
