// K scores of every table against double arithmetic over the scalar reference's decoded rows.

#include "support.h"

namespace varve::kernels::testing {
namespace {

class Scores : public EveryTable {};

/// Largest |score - q.k| / (|q| |k|) over the tile.
double worst_error(const std::vector<float>& q, const std::vector<float>& k, int group, int head_dim, int n, int stride,
                   const Guarded<float>& scores) {
  double worst = 0;
  for (int g = 0; g < group; ++g) {
    for (int t = 0; t < n; ++t) {
      const float* query = q.data() + g * head_dim;
      const float* key = k.data() + t * head_dim;
      const double scale = norm(query, head_dim) * norm(key, head_dim) + 1e-30;
      const double error = scores[static_cast<size_t>(g * stride + t)] - dot(query, key, head_dim);
      worst = std::max(worst, std::abs(error) / scale);
    }
  }
  return worst;
}

TEST_P(Scores, MatchDoubleOverDecodedRows) {
  for (const KCodec codec : k_codecs()) {
    for (const int head_dim : format::kHeadDims) {
      const auto tile = encode_k(codec, rows_like_a_cache(kTileTokens, head_dim, 7), head_dim);
      const auto decoded = decode_k(codec, tile, head_dim);
      for (const int group : kGroups) {
        const Query q(kernels(), rows_like_a_cache(group, head_dim, 11), group, head_dim);
        Guarded<float> scores(static_cast<size_t>(group * kTileTokens), kNan);
        kernels().k_scores[static_cast<size_t>(codec)](tile.data(), q.view(), scores.data());
        EXPECT_LT(worst_error(q.rows, decoded, group, head_dim, kTileTokens, kTileTokens, scores), 4e-5)
            << format::k_codec(codec).name << " head_dim " << head_dim << " group " << group;
        EXPECT_TRUE(scores.intact());
        EXPECT_TRUE(tile.intact());
      }
    }
  }
}

// One element carries nearly all of the query: the others keep few of their 15 bits.
TEST_P(Scores, PeakedQuery) {
  for (const KCodec codec : k_codecs()) {
    for (const int head_dim : format::kHeadDims) {
      const auto tile = encode_k(codec, gaussian(static_cast<size_t>(kTileTokens * head_dim), 3), head_dim);
      const auto decoded = decode_k(codec, tile, head_dim);
      std::vector<float> rows = gaussian(static_cast<size_t>(2 * head_dim), 5);
      rows[3] = 1000;
      rows[static_cast<size_t>(head_dim + 9)] = -3e4f;
      const Query q(kernels(), rows, 2, head_dim);
      Guarded<float> scores(2 * kTileTokens, kNan);
      kernels().k_scores[static_cast<size_t>(codec)](tile.data(), q.view(), scores.data());
      EXPECT_LT(worst_error(q.rows, decoded, 2, head_dim, kTileTokens, kTileTokens, scores), 5e-5)
          << format::k_codec(codec).name << " head_dim " << head_dim;
    }
  }
}

// The sums that could leave int32 if the bound of the integer kernel were wrong.
TEST_P(Scores, LargestIntegersDoNotOverflow) {
  for (const KCodec codec : k_codecs()) {
    for (const int head_dim : format::kHeadDims) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto tile =
            encode_k(codec, std::vector<float>(static_cast<size_t>(kTileTokens * head_dim), sign), head_dim);
        const auto decoded = decode_k(codec, tile, head_dim);
        const Query q(kernels(), std::vector<float>(static_cast<size_t>(head_dim), 2.0f), 1, head_dim);
        Guarded<float> scores(kTileTokens, kNan);
        kernels().k_scores[static_cast<size_t>(codec)](tile.data(), q.view(), scores.data());
        EXPECT_LT(worst_error(q.rows, decoded, 1, head_dim, kTileTokens, kTileTokens, scores), 4e-5)
            << format::k_codec(codec).name << " head_dim " << head_dim << " sign " << sign;
      }
    }
  }
}

TEST_P(Scores, LooseF16RowsOfAnyCount) {
  for (const int head_dim : format::kHeadDims) {
    for (const int n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65}) {
      for (const int group : kGroups) {
        const std::vector<float> k = rows_like_a_cache(n, head_dim, 23);
        std::vector<uint16_t> halves(k.size());
        std::vector<float> decoded(k.size());
        kernels().f32_to_f16(k.data(), halves.data(), k.size());
        kernels().f16_to_f32(halves.data(), decoded.data(), k.size());
        const Query q(kernels(), rows_like_a_cache(group, head_dim, 29), group, head_dim);
        const int stride = n + 3;
        Guarded<float> scores(static_cast<size_t>(group * stride), 77.0f);
        kernels().f16_scores(halves.data(), n, q.view(), stride, scores.data());
        EXPECT_LT(worst_error(q.rows, decoded, group, head_dim, n, stride, scores), 2e-6)
            << "head_dim " << head_dim << " n " << n << " group " << group;
        for (int g = 0; g < group; ++g) {
          for (int t = n; t < stride; ++t) EXPECT_EQ(scores[static_cast<size_t>(g * stride + t)], 77.0f);
        }
        EXPECT_TRUE(scores.intact());
      }
    }
  }
}

TEST_P(Scores, LostKeysLeaveTheirNeighboursAlone) {
  const int head_dim = 96, group = 3;
  for (const KCodec codec : k_codecs()) {
    std::vector<float> rows = rows_like_a_cache(kTileTokens, head_dim, 31);
    rows[5 * head_dim + 7] = kNan;
    rows[20 * head_dim + 95] = kInfinity;
    rows[41 * head_dim] = -kInfinity;
    for (int d = 0; d < head_dim; ++d) rows[static_cast<size_t>(63 * head_dim + d)] = d % 3 ? 1e-41f : 0.0f;
    const auto tile = encode_k(codec, rows, head_dim);
    const auto decoded = decode_k(codec, tile, head_dim);
    const Query q(kernels(), rows_like_a_cache(group, head_dim, 37), group, head_dim);
    Guarded<float> scores(group * kTileTokens);
    kernels().k_scores[static_cast<size_t>(codec)](tile.data(), q.view(), scores.data());
    for (int g = 0; g < group; ++g) {
      for (int t = 0; t < kTileTokens; ++t) {
        const float got = scores[static_cast<size_t>(g * kTileTokens + t)];
        const double expected = dot(q.rows.data() + g * head_dim, decoded.data() + t * head_dim, head_dim);
        EXPECT_EQ(std::isnan(got), std::isnan(expected))
            << format::k_codec(codec).name << " head " << g << " token " << t;
        EXPECT_EQ(std::isinf(got), std::isinf(expected))
            << format::k_codec(codec).name << " head " << g << " token " << t;
        EXPECT_EQ(std::isfinite(got), t != 5 && t != 20 && t != 41);
      }
    }
  }
}

TEST_P(Scores, LostQueriesLeaveTheirNeighboursAlone) {
  const int head_dim = 64, group = 6;
  for (const KCodec codec : k_codecs()) {
    const auto tile = encode_k(codec, rows_like_a_cache(kTileTokens, head_dim, 41), head_dim);
    std::vector<float> rows = rows_like_a_cache(group, head_dim, 43);
    rows[0 * head_dim + 1] = kNan;
    rows[2 * head_dim + 63] = kInfinity;
    for (int d = 0; d < head_dim; ++d) {
      rows[static_cast<size_t>(4 * head_dim + d)] = 0;
      rows[static_cast<size_t>(5 * head_dim + d)] = 1e-40f;
    }
    const Query q(kernels(), rows, group, head_dim);
    Guarded<float> scores(group * kTileTokens);
    kernels().k_scores[static_cast<size_t>(codec)](tile.data(), q.view(), scores.data());
    for (int g = 0; g < group; ++g) {
      for (int t = 0; t < kTileTokens; ++t) {
        const float got = scores[static_cast<size_t>(g * kTileTokens + t)];
        EXPECT_EQ(std::isfinite(got), g != 0 && g != 2) << format::k_codec(codec).name << " head " << g;
        if (g == 0) {
          EXPECT_TRUE(std::isnan(got));
        }
        if (g == 4) {
          EXPECT_EQ(got, 0.0f);
        }
        if (g == 5) {
          EXPECT_NEAR(got, 0.0f, 1e-30f);
        }
      }
    }
  }
}

TEST_P(Scores, QuantisedQueryIsWithinHalfAStep) {
  for (const int head_dim : format::kHeadDims) {
    for (const float sigma : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
      const Query q(kernels(), gaussian(static_cast<size_t>(16 * head_dim), 47, sigma), 16, head_dim);
      for (size_t g = 0; g < 16; ++g) {
        const double step = q.step[g];
        ASSERT_GT(step, 0);
        int32_t sum = 0;
        for (int d = 0; d < head_dim; ++d) {
          const size_t row = g * static_cast<size_t>(head_dim);
          const int16_t code = q.codes[row + static_cast<size_t>(pair_place(d))];
          ASSERT_LE(std::abs(int{code}), kQueryCodeMax);
          ASSERT_NEAR(step * code, q.rows[row + static_cast<size_t>(d)], 0.502 * step);
          sum += code;
        }
        ASSERT_EQ(q.sums[g], sum);
      }
    }
  }
}

VARVE_EVERY_TABLE(Scores);

}  // namespace
}  // namespace varve::kernels::testing
