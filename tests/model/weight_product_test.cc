// WeightProduct against a product in double over the same decoded weights, and what its contract says about threads and
// neighbours.

#include "model/weight_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace varve::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr ggml_type kTypes[] = {GGML_TYPE_F16,  GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};

std::vector<float> gaussian(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

/// Quantised random weights, [out][in].
struct Weight {
  std::vector<uint8_t> bytes;
  std::vector<float> decoded;
  ggml_tensor tensor{};

  Weight(ggml_type type, int in, int out) {
    const auto w = gaussian(static_cast<size_t>(in) * static_cast<size_t>(out), 7);
    bytes.resize(ggml_row_size(type, in) * static_cast<size_t>(out));
    ggml_quantize_chunk(type, w.data(), bytes.data(), 0, out, in, nullptr);
    decoded.resize(w.size());
    ggml_get_type_traits(type)->to_float(bytes.data(), decoded.data(), static_cast<int64_t>(w.size()));
    tensor.type = type;
    tensor.ne[0] = in;
    tensor.ne[1] = out;
    tensor.nb[1] = ggml_row_size(type, in);
    tensor.data = bytes.data();
  }
};

std::vector<float> multiply(const Weight& w, const std::vector<float>& x, int rows, int threads = 1) {
  WeightProduct product(WeightGemm::kAuto, *kernels::available().front(), threads);
  EXPECT_TRUE(product.check().ok());
  // A value that no thread may leave behind, and a guard behind the last row.
  const auto out = static_cast<size_t>(w.tensor.ne[1]);
  std::vector<float> y(static_cast<size_t>(rows) * out + 16, -12345.0f);
  for (int t = 0; t < threads; ++t) product.run(&w.tensor, x.data(), rows, y.data(), t, threads);
  for (size_t i = static_cast<size_t>(rows) * out; i < y.size(); ++i) EXPECT_EQ(y[i], -12345.0f) << "guard " << i;
  y.resize(static_cast<size_t>(rows) * out);
  return y;
}

/// Every element within a few roundings of the sum of magnitudes.
void expect_product(const Weight& w, const std::vector<float>& x, int rows, const std::vector<float>& y) {
  const auto in = static_cast<size_t>(w.tensor.ne[0]), out = static_cast<size_t>(w.tensor.ne[1]);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t o = 0; o < out; ++o) {
      double sum = 0, size = 0;
      for (size_t k = 0; k < in; ++k) {
        const double term = double{x[r * in + k]} * w.decoded[o * in + k];
        sum += term;
        size += std::abs(term);
      }
      const float got = y[r * out + o];
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(got)) << "row " << r << ", column " << o;
      } else if (std::isinf(sum)) {
        ASSERT_EQ(got, static_cast<float>(sum)) << "row " << r << ", column " << o;
      } else {
        ASSERT_NEAR(got, sum, 2e-6 * size + 1e-30) << "row " << r << ", column " << o << " of " << in << " x " << out;
      }
    }
  }
}

TEST(WeightProduct, EqualsTheProductInDouble) {
  for (const ggml_type type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type));
    const bool super_blocks = ggml_blck_size(type) == 256;
    for (const int in : super_blocks ? std::vector{256, 768} : std::vector{32, 224, 288}) {
      for (const int out : {1, 15, 33, 130}) {
        const Weight w(type, in, out);
        for (const int rows : {1, 63, 64, 65}) {
          const auto x = gaussian(static_cast<size_t>(rows) * static_cast<size_t>(in), 3);
          expect_product(w, x, rows, multiply(w, x, rows));
        }
      }
    }
  }
}

TEST(WeightProduct, ManyRowsOfOddSizes) {
  for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0}) {
    SCOPED_TRACE(ggml_type_name(type));
    const Weight w(type, 544, 67);
    for (const int rows : {512, 513}) {
      const auto x = gaussian(static_cast<size_t>(rows) * 544, 3);
      expect_product(w, x, rows, multiply(w, x, rows));
    }
  }
}

TEST(WeightProduct, ThreadsChangeNoBit) {
  for (const int out : {1, 16, 17, 100, 576}) {
    const Weight w(GGML_TYPE_Q4_1, 576, out);
    const auto x = gaussian(65 * 576, 3);
    const auto one = multiply(w, x, 65, 1);
    for (const int threads : {1, 2, 3, 7}) EXPECT_EQ(one, multiply(w, x, 65, threads)) << out << ", " << threads;
  }
}

TEST(WeightProduct, OtherRowsChangeNoBit) {
  for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q8_0}) {
    const int in = 576, out = 100;
    const Weight w(type, in, out);
    const auto x = gaussian(513 * in, 3);
    const auto all = multiply(w, x, 513);
    for (const int rows : {64, 65, 77, 512}) {
      for (const int first : {0, 1, 513 - rows}) {
        const std::vector<float> some(x.begin() + first * in, x.begin() + (first + rows) * in);
        const std::vector<float> expected(all.begin() + first * out, all.begin() + (first + rows) * out);
        EXPECT_EQ(expected, multiply(w, some, rows)) << rows << " rows from " << first;
      }
    }
  }
}

TEST(WeightProduct, NanAndInfinityStayWhereTheyBelong) {
  const int in = 96, out = 40, rows = 64;
  Weight w(GGML_TYPE_Q8_0, in, out);
  auto x = gaussian(size_t{rows} * in, 3);
  x[5 * in + 3] = kNan;
  x[9 * in + 95] = kInfinity;
  x[10 * in] = -kInfinity;
  x[11 * in] = kInfinity;
  x[11 * in + 1] = kInfinity;
  // A block of weights with an infinite scale: row 7 of w.
  const uint16_t infinite = 0x7c00;
  std::memcpy(w.bytes.data() + 7 * w.tensor.nb[1], &infinite, sizeof(infinite));
  ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(w.bytes.data(), w.decoded.data(), int64_t{in} * out);
  const auto y = multiply(w, x, rows);
  expect_product(w, x, rows, y);
  EXPECT_TRUE(std::isnan(y[5 * out]));
  EXPECT_TRUE(std::isinf(y[9 * out]));
  EXPECT_TRUE(std::isfinite(y[4 * out]));
}

TEST(WeightProduct, SharesCoverEveryColumnOnce) {
  for (const int out : {1, 15, 16, 17, 192, 49152}) {
    for (const int threads : {1, 2, 3, 64}) {
      int next = 0;
      for (int t = 0; t < threads; ++t) {
        const auto [begin, end] = WeightProduct::share(out, t, threads);
        EXPECT_EQ(begin, next);
        EXPECT_GE(end, begin);
        next = end;
      }
      EXPECT_EQ(next, out);
    }
  }
}

TEST(WeightProduct, TheTableKnowsTypesAndBuffers) {
  const kernels::Kernels& best = *kernels::available().front();
  const kernels::Kernels& scalar = *kernels::available().back();
  const Weight faster(GGML_TYPE_Q4_1, 32, 2), slower(GGML_TYPE_F16, 32, 2);
  const bool vectors = &best != &scalar;
  EXPECT_EQ(WeightProduct(WeightGemm::kAuto, best, 1).takes(&faster.tensor), vectors);
  EXPECT_FALSE(WeightProduct(WeightGemm::kAuto, best, 1).takes(&slower.tensor));
  EXPECT_FALSE(WeightProduct(WeightGemm::kAuto, scalar, 1).takes(&faster.tensor));
  EXPECT_FALSE(WeightProduct(WeightGemm::kGgml, best, 1).takes(&faster.tensor));
  ggml_tensor plain{};
  plain.type = GGML_TYPE_F32;
  EXPECT_TRUE(WeightProduct(WeightGemm::kFp32, scalar, 1).takes(&slower.tensor));
  EXPECT_FALSE(WeightProduct(WeightGemm::kFp32, best, 1).takes(&plain));
  EXPECT_EQ(WeightProduct(WeightGemm::kGgml, best, 8).scratch_bytes(), 0u);
  EXPECT_EQ(WeightProduct(WeightGemm::kAuto, best, 8).scratch_bytes(), 8 * WeightProduct::kBytesPerThread);
}

TEST(WeightProduct, AnUnknownChoiceIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(*parse_weight_gemm("auto"), WeightGemm::kAuto);
  EXPECT_EQ(*parse_weight_gemm("ggml"), WeightGemm::kGgml);
  EXPECT_EQ(*parse_weight_gemm("fp32"), WeightGemm::kFp32);
  const auto bad = parse_weight_gemm("mkl");
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  for (const char* word : {"mkl", "auto", "ggml", "fp32"}) {
    EXPECT_NE(bad.status().message().find(word), std::string::npos) << bad.status().message();
  }
}

}  // namespace
}  // namespace varve::model
