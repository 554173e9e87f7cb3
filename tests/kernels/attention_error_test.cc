// The error of a whole attention step, the number users feel: scores, softmax and weighted sum over several tiles
// against double arithmetic over the decoded rows. Bound: 1e-3 relative; docs/adr/0006 quotes this test.

#include "support.h"

namespace varve::kernels::testing {
namespace {

class AttentionError : public EveryTable {};

constexpr int kTiles = 8;

/// query_step: queries are rounded to multiples of it, in units of their 15-bit codes.
double relative_error(const Kernels& kernels, KCodec k_codec, VCodec v_codec, int head_dim, int group, float peak,
                      int query_step = 1) {
  std::vector<Guarded<uint8_t>> k_tiles, v_tiles;
  std::vector<float> k, v;
  for (int i = 0; i < kTiles; ++i) {
    const size_t n = static_cast<size_t>(kTileTokens * head_dim);
    k_tiles.push_back(encode_k(k_codec, gaussian(n, static_cast<unsigned>(100 + i)), head_dim));
    v_tiles.push_back(encode_v(v_codec, gaussian(n, static_cast<unsigned>(200 + i)), head_dim));
    const auto k_rows = decode_k(k_codec, k_tiles.back(), head_dim),
               v_rows = decode_v(v_codec, v_tiles.back(), head_dim);
    k.insert(k.end(), k_rows.begin(), k_rows.end());
    v.insert(v.end(), v_rows.begin(), v_rows.end());
  }
  Query q(kernels, gaussian(static_cast<size_t>(group * head_dim), 300, peak / std::sqrt(static_cast<float>(head_dim))),
          group, head_dim);
  for (size_t g = 0; g < q.sums.size(); ++g) {
    q.sums[g] = 0;
    for (size_t d = 0; d < static_cast<size_t>(head_dim); ++d) {
      int16_t& code = q.codes[g * static_cast<size_t>(head_dim) + d];
      code = static_cast<int16_t>(std::lround(static_cast<double>(code) / query_step) * query_step);
      q.sums[g] += code;
    }
  }

  // As attention runs it: the maximum of all tiles first, then weights and sums.
  const int tokens = kTiles * kTileTokens;
  std::vector<float> scores(static_cast<size_t>(kTiles * group * kTileTokens));
  std::vector<float> acc(static_cast<size_t>(group * head_dim)), sum(static_cast<size_t>(group));
  const auto tile_scores = [&](int tile) { return scores.data() + tile * group * kTileTokens; };
  for (int i = 0; i < kTiles; ++i) {
    kernels.k_scores[static_cast<size_t>(k_codec)](k_tiles[static_cast<size_t>(i)].data(), q.view(), tile_scores(i));
  }
  for (int g = 0; g < group; ++g) {
    float max = -kInfinity;
    for (int i = 0; i < kTiles; ++i) max = std::max(max, kernels.max(tile_scores(i) + g * kTileTokens, kTileTokens));
    for (int i = 0; i < kTiles; ++i) {
      sum[static_cast<size_t>(g)] += kernels.exp_sum(tile_scores(i) + g * kTileTokens, kTileTokens, max);
    }
  }
  for (int i = 0; i < kTiles; ++i) {
    kernels.v_accumulate[static_cast<size_t>(v_codec)](v_tiles[static_cast<size_t>(i)].data(), head_dim, group,
                                                       tile_scores(i), acc.data());
  }

  double worst = 0;
  for (int g = 0; g < group; ++g) {
    std::vector<double> weight(static_cast<size_t>(tokens));
    double max = -1e300, total = 0;
    for (int t = 0; t < tokens; ++t) {
      weight[static_cast<size_t>(t)] = dot(q.rows.data() + g * head_dim, k.data() + t * head_dim, head_dim);
      max = std::max(max, weight[static_cast<size_t>(t)]);
    }
    for (double& w : weight) total += w = std::exp(w - max);
    double error = 0, energy = 0;
    for (int d = 0; d < head_dim; ++d) {
      double expected = 0;
      for (int t = 0; t < tokens; ++t) {
        expected += weight[static_cast<size_t>(t)] * v[static_cast<size_t>(t * head_dim + d)] / total;
      }
      const double got = double{acc[static_cast<size_t>(g * head_dim + d)]} / sum[static_cast<size_t>(g)];
      error += (got - expected) * (got - expected);
      energy += expected * expected;
    }
    worst = std::max(worst, std::sqrt(error / energy));
  }
  return worst;
}

TEST_P(AttentionError, StaysBelowTheBound) {
  double worst = 0;
  for (const KCodec k_codec : k_codecs()) {
    for (const VCodec v_codec : v_codecs()) {
      for (const auto& [head_dim, group] : {std::pair{64, 3}, std::pair{256, 4}}) {
        for (const float peak : {1.0f, 8.0f}) {  // nearly flat, and one or two tokens take all
          const double error = relative_error(kernels(), k_codec, v_codec, head_dim, group, peak);
          EXPECT_LT(error, 5e-4) << format::k_codec(k_codec).name << " " << format::v_codec(v_codec).name
                                 << " head_dim " << head_dim << " peak " << peak;
          worst = std::max(worst, error);
        }
      }
    }
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
}

// What an 8-bit query would cost, and that the test above can fail.
TEST_P(AttentionError, EightBitQueriesMissTheBound) {
  if (kernels().k_scores == available().back()->k_scores) GTEST_SKIP() << "generic reads no codes";
  for (const KCodec codec : {KCodec::kInt8, KCodec::kTq4, KCodec::kTq3}) {
    EXPECT_GT(relative_error(kernels(), codec, VCodec::kTq3, 256, 4, 8.0f, kQueryCodeMax / 127), 1e-2);
    EXPECT_GT(relative_error(kernels(), codec, VCodec::kTq3, 64, 3, 1.0f, kQueryCodeMax / 127), 1e-3);
  }
}

VARVE_EVERY_TABLE(AttentionError);

}  // namespace
}  // namespace varve::kernels::testing
