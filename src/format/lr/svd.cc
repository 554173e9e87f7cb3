#include "format/lr/svd.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace varve::format {
namespace {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColumnMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic>;

/// Box-Muller: the standard's normal_distribution is not the same in every library.
void fill_gaussian(uint64_t seed, size_t n, float* x) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < n; i += 2) {
    const uint64_t bits = random();
    const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // (0, 1]
    const float angle = static_cast<float>((bits >> 16) & 0xffffffu) * (0x1p-23f * std::numbers::pi_v<float>);
    const float radius = std::sqrt(-2.0f * std::log(u));
    x[i] = radius * std::cos(angle);
    if (i + 1 < n) x[i + 1] = radius * std::sin(angle);
  }
}

/// to[columns][rows] = from[rows][columns], transposed.
void transpose(int rows, int columns, const float* from, float* to) {
  Eigen::Map<ColumnMatrix>(to, rows, columns) = Eigen::Map<const RowMatrix>(from, rows, columns);
}

/// Makes the rows of z, [count][length], orthonormal; count <= length.
void orthonormalise(int count, int length, float* z) {
  Eigen::Map<ColumnMatrix> columns(z, length, count);  // the rows of z
  Eigen::HouseholderQR<Eigen::Ref<ColumnMatrix>> qr(columns);
  const ColumnMatrix q = qr.householderQ() * ColumnMatrix::Identity(length, count);
  columns = q;
}

}  // namespace

int sketch_width(int rank, int oversample, int rows, int columns) {
  constexpr int kVector = 16;
  const int wide = (rank + oversample + kVector - 1) / kVector * kVector;
  return std::min({wide, rows, columns});
}

size_t svd_scratch_floats(const SvdShape& shape) {
  const size_t w = static_cast<size_t>(shape.width);
  return 2 * w * static_cast<size_t>(shape.rows + shape.columns) + 2 * w * w;
}

void randomised_svd(const SvdShape& shape, const float* n, int power_iterations, uint64_t seed, Gemm gemm,
                    float* scratch, float* vt, float* c, double* energy) {
  const int rows = shape.rows, columns = shape.columns, w = shape.width;
  const size_t tall = static_cast<size_t>(w) * static_cast<size_t>(rows);
  const size_t wide = static_cast<size_t>(w) * static_cast<size_t>(columns);
  const size_t small = static_cast<size_t>(w) * static_cast<size_t>(w);
  float* yt = scratch;   // [w][rows]
  float* y = yt + tall;  // [rows][w]
  float* zt = y + tall;  // [w][columns]
  float* z = zt + wide;  // [columns][w]
  float* g = z + wide;   // [w][w]
  float* e = g + small;  // [w][w]

  fill_gaussian(seed, tall, yt);
  gemm(w, columns, rows, yt, rows, n, columns, zt, columns, false);
  orthonormalise(w, columns, zt);
  for (int i = 0; i < power_iterations; ++i) {
    transpose(w, columns, zt, z);
    gemm(rows, w, columns, n, columns, z, w, y, w, false);
    transpose(rows, w, y, yt);
    gemm(w, columns, rows, yt, rows, n, columns, zt, columns, false);
    orthonormalise(w, columns, zt);
  }

  // n restricted to the sketched row space is y . zt; the eigenvectors of y^T y turn zt into singular directions.
  transpose(w, columns, zt, z);
  gemm(rows, w, columns, n, columns, z, w, y, w, false);
  transpose(rows, w, y, yt);
  gemm(w, w, rows, yt, rows, y, w, g, w, false);
  const Eigen::MatrixXd gram = Eigen::Map<const RowMatrix>(g, w, w).cast<double>();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(gram);  // ascending
  for (int i = 0; i < w; ++i) {
    energy[i] = std::max(0.0, solver.eigenvalues()(w - 1 - i));
    for (int j = 0; j < w; ++j) g[i * w + j] = static_cast<float>(solver.eigenvectors()(j, w - 1 - i));
  }
  transpose(w, w, g, e);
  gemm(w, columns, w, g, w, zt, columns, vt, columns, false);
  gemm(rows, w, w, y, w, e, w, c, w, false);
}

}  // namespace varve::format
