#pragma once
// Randomised singular value decomposition (Halko, Martinsson, Tropp 2011, algorithms 4.4 and 5.1, of the transpose):
// the row space is sketched, because a page has more rows than columns and only directions are stored.

#include <cstddef>
#include <cstdint>

#include "format/lr/encode.h"

namespace varve::format {

struct SvdShape {
  int rows = 0;
  int columns = 0;
  int width = 0;  ///< of the sketch, at most min(rows, columns)
};

/// Sketch width for `rank` directions: oversampled, rounded up to whole vectors of a kernel, at most what the matrix
/// has.
int sketch_width(int rank, int oversample, int rows, int columns);

size_t svd_scratch_floats(const SvdShape& shape);

/// Leading right singular directions of n, [rows][columns].
/// vt: [width][columns], orthonormal rows, the largest singular value first. c: [rows][width] = n . vt^T.
/// energy: [width] squared singular values, descending, 0 where nothing is left. scratch: svd_scratch_floats(shape).
/// The sketch is Gaussian, from its own generator. An all-zero n gives energies of 0.
void randomised_svd(const SvdShape& shape, const float* n, int power_iterations, uint64_t seed, Gemm gemm,
                    float* scratch, float* vt, float* c, double* energy);

}  // namespace varve::format
