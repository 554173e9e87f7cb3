// The randomised SVD against the full one.

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <cmath>
#include <numbers>

#include "format/lr/svd.h"
#include "lr_support.h"

namespace varve::format {
namespace {

using namespace test;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Sketched {
  Matrix vt, c;
  std::vector<double> energy;
};

Sketched sketch(const Matrix& n, int width, int power_iterations, uint64_t seed) {
  const SvdShape shape{static_cast<int>(n.rows()), static_cast<int>(n.cols()), width};
  Sketched s{Matrix(width, n.cols()), Matrix(n.rows(), width), std::vector<double>(static_cast<size_t>(width))};
  std::vector<float> scratch(svd_scratch_floats(shape) + 1, 5e20f);
  randomised_svd(shape, n.data(), power_iterations, seed, plain_gemm, scratch.data(), s.vt.data(), s.c.data(),
                 s.energy.data());
  EXPECT_EQ(scratch.back(), 5e20f);
  return s;
}

/// Singular values 1, decay, decay^2, ... in random directions.
Matrix with_spectrum(int rows, int columns, double decay, uint32_t seed) {
  const auto noise = gaussian(static_cast<size_t>(rows) * static_cast<size_t>(columns), seed);
  const Eigen::MatrixXf g = Eigen::Map<const Matrix>(noise.data(), rows, columns);
  const Eigen::BDCSVD<Eigen::MatrixXf> svd(g, Eigen::ComputeThinU | Eigen::ComputeThinV);
  Eigen::VectorXf s(std::min(rows, columns));
  for (int i = 0; i < s.size(); ++i) s(i) = static_cast<float>(std::pow(decay, i));
  return svd.matrixU() * s.asDiagonal() * svd.matrixV().transpose();
}

struct Case {
  int rows, columns;
};
constexpr Case kCases[] = {{256, 128}, {64, 256}, {192, 192}};

TEST(LrSvd, ErrorIsWithinTheBoundOfTheSketch) {
  for (const Case c : kCases) {
    for (const double decay : {0.8, 0.97, 1.0}) {
      for (uint32_t seed = 0; seed < 6; ++seed) {
        const Matrix n = with_spectrum(c.rows, c.columns, decay, seed);
        constexpr int kRank = 11, kOversample = 5, kPower = 2;
        const int width = sketch_width(kRank, kOversample, c.rows, c.columns);
        ASSERT_EQ(width, 16);
        const Sketched s = sketch(n, width, kPower, 1234 + seed);
        const Eigen::BDCSVD<Eigen::MatrixXd> full(n.cast<double>());
        const auto& sigma = full.singularValues();
        // Halko, Martinsson, Tropp 2011, corollary 10.10: the expected spectral error of a range of rank k found with
        // p more directions and q power iterations.
        const double smaller = std::min(c.rows, c.columns);
        const double factor =
            std::pow(1 + std::sqrt(kRank / (kOversample - 1.0)) +
                         std::numbers::e * std::sqrt(kRank + kOversample) / kOversample * std::sqrt(smaller - kRank),
                     1.0 / (2 * kPower + 1));
        const Eigen::MatrixXd nd = n.cast<double>(), v = s.vt.cast<double>().transpose();
        const Eigen::MatrixXd rest = nd - nd * v * v.transpose();
        const double error = Eigen::BDCSVD<Eigen::MatrixXd>(rest).singularValues()(0);
        EXPECT_LE(error, factor * sigma(kRank)) << c.rows << "x" << c.columns << " decay " << decay << " seed " << seed;
        // What is stored, the first kRank, against the best there is.
        const Eigen::MatrixXd kept = v.leftCols(kRank);
        const double stored = (nd - nd * kept * kept.transpose()).norm();
        const double best = sigma.tail(sigma.size() - kRank).norm();
        EXPECT_LE(stored, best * 1.03) << c.rows << "x" << c.columns << " decay " << decay << " seed " << seed;
      }
    }
  }
}

TEST(LrSvd, DirectionsAreOrthonormalAndCarryTheEnergyTheySay) {
  for (const Case c : kCases) {
    const Matrix n = with_spectrum(c.rows, c.columns, 0.7, 9);
    const Sketched s = sketch(n, 32, 2, 5);
    EXPECT_LE((s.vt * s.vt.transpose() - Matrix::Identity(32, 32)).cwiseAbs().maxCoeff(), 1e-4f);
    EXPECT_LE((s.c - n * s.vt.transpose()).cwiseAbs().maxCoeff(), 1e-4f);
    for (int i = 0; i < 32; ++i) {
      const double expected = std::pow(0.7, 2 * i);
      EXPECT_NEAR(s.energy[static_cast<size_t>(i)], expected, 1e-6 + 1e-3 * expected) << i;
      if (i > 0) {
        EXPECT_LE(s.energy[static_cast<size_t>(i)], s.energy[static_cast<size_t>(i - 1)]);
      }
    }
  }
}

TEST(LrSvd, AFullSketchIsExact) {
  const Matrix n = with_spectrum(64, 96, 0.95, 3);
  const int width = sketch_width(63, 5, 64, 96);
  ASSERT_EQ(width, 64);
  const Sketched s = sketch(n, width, 2, 7);
  EXPECT_LE((n - s.c * s.vt).norm(), 1e-5f * n.norm());
}

TEST(LrSvd, PowerIterationsSharpenAFlatSpectrum) {
  const Matrix n = with_spectrum(256, 128, 0.98, 21);
  const auto lost = [&](int power_iterations) {
    const Sketched s = sketch(n, 16, power_iterations, 3);
    return static_cast<double>((n - s.c.leftCols(11) * s.vt.topRows(11)).norm());
  };
  EXPECT_LT(lost(1), 0.98 * lost(0));
  EXPECT_LT(lost(2), lost(1));
}

TEST(LrSvd, SameSeedSameBytesOtherSeedOtherSketch) {
  const Matrix n = with_spectrum(128, 128, 0.99, 2);
  const Sketched a = sketch(n, 16, 2, 5), b = sketch(n, 16, 2, 5), other = sketch(n, 16, 2, 6);
  EXPECT_EQ(a.vt, b.vt);
  EXPECT_EQ(a.c, b.c);
  EXPECT_EQ(a.energy, b.energy);
  EXPECT_NE(a.vt, other.vt);
}

TEST(LrSvd, FewDirectionsAndNone) {
  const Sketched zero = sketch(Matrix::Zero(64, 128), 16, 2, 1);
  for (const double e : zero.energy) EXPECT_EQ(e, 0.0);
  EXPECT_TRUE(zero.vt.allFinite());
  // Rank 1.
  Matrix n(64, 128);
  for (int r = 0; r < 64; ++r) {
    for (int c = 0; c < 128; ++c) n(r, c) = static_cast<float>((r + 1) * (c - 60));
  }
  const Sketched one = sketch(n, 16, 2, 1);
  EXPECT_TRUE(one.vt.allFinite());
  EXPECT_LE((n - one.c.leftCols(1) * one.vt.topRows(1)).norm(), 1e-5f * n.norm());
  EXPECT_LE(one.energy[1], 1e-6 * one.energy[0]);
}

}  // namespace
}  // namespace varve::format
