// Weighted sums of V of every table against double arithmetic over the scalar reference's decoded rows.

#include "support.h"

namespace varve::kernels::testing {
namespace {

class Accumulate : public EveryTable {};

std::vector<float> probabilities(int group, int n, unsigned seed, float temperature) {
  std::vector<float> p = gaussian(static_cast<size_t>(group * n), seed, temperature);
  for (int g = 0; g < group; ++g) {
    double sum = 0;
    for (int t = 0; t < n; ++t) {
      float& x = p[static_cast<size_t>(g * n + t)];
      x = t % 7 == 6 ? 0.0f : std::exp(x);
      sum += x;
    }
    for (int t = 0; t < n; ++t) p[static_cast<size_t>(g * n + t)] /= static_cast<float>(sum);
  }
  return p;
}

/// Largest error of a head's output row, relative to sum_t p_t |v_t|.
double worst_error(const std::vector<float>& p, const std::vector<float>& v, int group, int head_dim, int n,
                   const std::vector<float>& before, const Guarded<float>& acc) {
  double worst = 0;
  for (int g = 0; g < group; ++g) {
    double scale = 1e-30, error = 0;
    for (int t = 0; t < n; ++t) scale += p[static_cast<size_t>(g * n + t)] * norm(v.data() + t * head_dim, head_dim);
    for (int d = 0; d < head_dim; ++d) {
      double expected = before[static_cast<size_t>(g * head_dim + d)];
      for (int t = 0; t < n; ++t) {
        expected += double{p[static_cast<size_t>(g * n + t)]} * v[static_cast<size_t>(t * head_dim + d)];
      }
      const double difference = acc[static_cast<size_t>(g * head_dim + d)] - expected;
      error += difference * difference;
    }
    worst = std::max(worst, std::sqrt(error) / scale);
  }
  return worst;
}

TEST_P(Accumulate, MatchesDoubleOverDecodedRows) {
  for (const VCodec codec : v_codecs()) {
    for (const int head_dim : format::kHeadDims) {
      const auto tile = encode_v(codec, rows_like_a_cache(kTileTokens, head_dim, 7), head_dim);
      const auto decoded = decode_v(codec, tile, head_dim);
      for (const int group : kGroups) {
        for (const float temperature : {0.5f, 6.0f}) {
          const auto p = probabilities(group, kTileTokens, 13, temperature);
          const auto before = gaussian(static_cast<size_t>(group * head_dim), 17);
          Guarded<float> acc(before.size());
          std::copy(before.begin(), before.end(), acc.begin());
          kernels().v_accumulate[static_cast<size_t>(codec)](tile.data(), head_dim, group, p.data(), acc.data());
          EXPECT_LT(worst_error(p, decoded, group, head_dim, kTileTokens, before, acc), 1e-4)
              << format::v_codec(codec).name << " head_dim " << head_dim << " group " << group << " temperature "
              << temperature;
          EXPECT_TRUE(acc.intact());
          EXPECT_TRUE(tile.intact());
        }
      }
    }
  }
}

TEST_P(Accumulate, FetchingAheadChangesNoBit) {
  for (const VCodec codec : v_codecs()) {
    const auto sum_ahead = kernels().v_accumulate_ahead[static_cast<size_t>(codec)];
    if (sum_ahead == nullptr) continue;
    for (const int head_dim : format::kHeadDims) {
      const auto tile = encode_v(codec, rows_like_a_cache(kTileTokens, head_dim, 7), head_dim);
      const auto next = encode_v(codec, rows_like_a_cache(kTileTokens, head_dim, 8), head_dim);
      for (const int group : kGroups) {
        const auto p = probabilities(group, kTileTokens, 13, 6.0f);
        const auto n = static_cast<size_t>(group * head_dim);
        std::vector<float> expected(n, 0.5f);
        kernels().v_accumulate[static_cast<size_t>(codec)](tile.data(), head_dim, group, p.data(), expected.data());
        for (const size_t bytes : {size_t{0}, size_t{1}, next.size()}) {
          Guarded<float> acc(n, 0.5f);
          sum_ahead(tile.data(), head_dim, group, p.data(), acc.data(), {bytes > 0 ? next.data() : nullptr, bytes});
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), acc.begin()))
              << format::v_codec(codec).name << " head_dim " << head_dim << " group " << group << " bytes " << bytes;
          EXPECT_TRUE(acc.intact());
          EXPECT_TRUE(next.intact());
        }
      }
    }
  }
}

TEST_P(Accumulate, LargestIntegersDoNotOverflow) {
  for (const VCodec codec : v_codecs()) {
    for (const int head_dim : format::kHeadDims) {
      std::vector<float> rows(static_cast<size_t>(kTileTokens * head_dim));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = i % 2 ? -1.0f : 1.0f;
      const auto tile = encode_v(codec, rows, head_dim);
      const auto decoded = decode_v(codec, tile, head_dim);
      const std::vector<float> p(kTileTokens, 1.0f);
      const std::vector<float> before(static_cast<size_t>(head_dim), 0.0f);
      Guarded<float> acc(before.size(), 0.0f);
      kernels().v_accumulate[static_cast<size_t>(codec)](tile.data(), head_dim, 1, p.data(), acc.data());
      EXPECT_LT(worst_error(p, decoded, 1, head_dim, kTileTokens, before, acc), 1e-4)
          << format::v_codec(codec).name << " head_dim " << head_dim;
    }
  }
}

TEST_P(Accumulate, LooseF16RowsOfAnyCount) {
  for (const int head_dim : format::kHeadDims) {
    for (const int n : {1, 2, 3, 15, 16, 17, 64, 65}) {
      for (const int group : kGroups) {
        const std::vector<float> v = rows_like_a_cache(n, head_dim, 19);
        std::vector<uint16_t> halves(v.size());
        std::vector<float> decoded(v.size());
        kernels().f32_to_f16(v.data(), halves.data(), v.size());
        kernels().f16_to_f32(halves.data(), decoded.data(), v.size());
        const int stride = n + 2;
        const auto p = probabilities(group, n, 21, 2.0f);
        std::vector<float> strided(static_cast<size_t>(group * stride), kNan);
        for (int g = 0; g < group; ++g) std::copy_n(p.data() + g * n, n, strided.data() + g * stride);
        const auto before = gaussian(static_cast<size_t>(group * head_dim), 23);
        Guarded<float> acc(before.size());
        std::copy(before.begin(), before.end(), acc.begin());
        kernels().f16_accumulate(halves.data(), n, head_dim, group, stride, strided.data(), acc.data());
        EXPECT_LT(worst_error(p, decoded, group, head_dim, n, before, acc), 2e-6)
            << "head_dim " << head_dim << " n " << n << " group " << group;
        EXPECT_TRUE(acc.intact());
      }
    }
  }
}

TEST_P(Accumulate, LostProbabilitiesStayInTheirHead) {
  const int head_dim = 80, group = 5;
  for (const VCodec codec : v_codecs()) {
    const auto tile = encode_v(codec, rows_like_a_cache(kTileTokens, head_dim, 53), head_dim);
    auto p = probabilities(group, kTileTokens, 59, 1.0f);
    p[1 * kTileTokens + 9] = kNan;
    p[3 * kTileTokens + 63] = kInfinity;
    for (int t = 0; t < kTileTokens; ++t) p[static_cast<size_t>(4 * kTileTokens + t)] = t % 2 ? 1e-40f : 0.0f;
    Guarded<float> acc(group * head_dim, 0.0f);
    kernels().v_accumulate[static_cast<size_t>(codec)](tile.data(), head_dim, group, p.data(), acc.data());
    for (int g = 0; g < group; ++g) {
      for (int d = 0; d < head_dim; ++d) {
        const float got = acc[static_cast<size_t>(g * head_dim + d)];
        EXPECT_EQ(std::isfinite(got), g != 1 && g != 3) << format::v_codec(codec).name << " head " << g << " dim " << d;
        if (g == 1) {
          EXPECT_TRUE(std::isnan(got));
        }
        if (g == 4) {
          EXPECT_NEAR(got, 0.0f, 1e-30f);
        }
      }
    }
  }
}

TEST_P(Accumulate, LostValuesAreLostWhereTheReferenceLosesThem) {
  const int head_dim = 64, group = 2;
  for (const VCodec codec : v_codecs()) {
    for (const float lost : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> rows = rows_like_a_cache(kTileTokens, head_dim, 61);
      rows[17 * head_dim + 40] = lost;
      const auto tile = encode_v(codec, rows, head_dim);
      const auto decoded = decode_v(codec, tile, head_dim);
      const auto p = probabilities(group, kTileTokens, 67, 1.0f);
      Guarded<float> acc(group * head_dim, 0.0f);
      kernels().v_accumulate[static_cast<size_t>(codec)](tile.data(), head_dim, group, p.data(), acc.data());
      for (int g = 0; g < group; ++g) {
        for (int d = 0; d < head_dim; ++d) {
          double expected = 0;
          for (int t = 0; t < kTileTokens; ++t) {
            expected +=
                double{p[static_cast<size_t>(g * kTileTokens + t)]} * decoded[static_cast<size_t>(t * head_dim + d)];
          }
          const float got = acc[static_cast<size_t>(g * head_dim + d)];
          EXPECT_EQ(std::isnan(got), std::isnan(expected)) << format::v_codec(codec).name << " dim " << d;
          EXPECT_EQ(std::isinf(got), std::isinf(expected)) << format::v_codec(codec).name << " dim " << d;
        }
      }
    }
  }
}

VARVE_EVERY_TABLE(Accumulate);

}  // namespace
}  // namespace varve::kernels::testing
