#pragma once
// Pages for the tests of low-rank blocks, and blocks of them.

#include <algorithm>
#include <cstring>
#include <vector>

#include "format/lr/encode.h"
#include "support.h"

namespace varve::format::test {

/// Rows before encoding or after decoding: [tokens][kv_heads * head_dim].
struct LrRows {
  std::vector<float> k, v;
};

inline BlockShape lr_shape(int tokens, int kv_heads, int head_dim, LowRank format) {
  return {tokens, kv_heads, head_dim, format};
}

/// One side: a common offset, `directions` directions of falling strength, and noise.
inline std::vector<float> lr_side(const BlockShape& shape, int directions, float noise, uint32_t seed) {
  const size_t tokens = static_cast<size_t>(shape.tokens), half = static_cast<size_t>(shape.width() / 2);
  const size_t n = static_cast<size_t>(directions);
  const auto basis = gaussian(n * half, seed), u = gaussian(tokens * n, seed + 1), offset = gaussian(half, seed + 2, 3);
  std::vector<float> rows = gaussian(tokens * half, seed + 3, noise);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t d = 0; d < half; ++d) rows[t * half + d] += offset[d];
    for (size_t i = 0; i < n; ++i) {
      const float factor = u[t * n + i] / static_cast<float>(1 + i);
      for (size_t d = 0; d < half; ++d) rows[t * half + d] += factor * basis[i * half + d];
    }
  }
  return rows;
}

inline LrRows lr_page(const BlockShape& shape, uint32_t seed, int directions = 6, float noise = 0.05f) {
  return {lr_side(shape, directions, noise, seed), lr_side(shape, directions, noise, seed + 100)};
}

struct LrBlock {
  BlockShape shape;
  BlockReport report;
  std::vector<uint8_t> bytes;

  BlockView view() const { return view_block(shape, bytes.data()); }
  std::vector<int> exact_rows() const { return {view().row_tokens, view().row_tokens + view().rows}; }
  bool is_exact(int t) const {
    const auto rows = exact_rows();
    return std::find(rows.begin(), rows.end(), t) != rows.end();
  }

  LrRows decode() const {
    const size_t tokens = static_cast<size_t>(shape.tokens), dim = static_cast<size_t>(shape.head_dim);
    const size_t half = static_cast<size_t>(shape.width() / 2);
    LrRows rows{std::vector<float>(tokens * half), std::vector<float>(tokens * half)};
    std::vector<float> k(kTileTokens * dim), v(kTileTokens * dim);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int tile = 0; tile < shape.tokens / kTileTokens; ++tile) {
        decode_block_tile(shape, bytes.data(), head, tile, k.data(), v.data());
        for (size_t t = 0; t < kTileTokens; ++t) {
          const size_t at = (static_cast<size_t>(tile) * kTileTokens + t) * half + static_cast<size_t>(head) * dim;
          std::copy_n(k.data() + t * dim, dim, rows.k.data() + at);
          std::copy_n(v.data() + t * dim, dim, rows.v.data() + at);
        }
      }
    }
    return rows;
  }
};

inline LrBlock lr_encode(const BlockShape& shape, const LrRows& rows, const LowRankOptions& options = {},
                         const TokenTraits& traits = {}, int skip = 0) {
  LrBlock block{shape, {}, std::vector<uint8_t>(block_bytes(shape), 0xcd)};
  std::vector<float> scratch(encode_scratch_floats(shape, options), 1e30f);  // what was in it must not matter
  block.report = encode_block(shape, options, traits, skip, rows.k.data(), rows.v.data(), plain_gemm, scratch.data(),
                              block.bytes.data());
  return block;
}

/// |a - b| of row t.
inline double row_error(const BlockShape& shape, const std::vector<float>& a, const std::vector<float>& b, int t) {
  const size_t half = static_cast<size_t>(shape.width() / 2), at = static_cast<size_t>(t) * half;
  double sum = 0;
  for (size_t d = at; d < at + half; ++d) {
    const double e = static_cast<double>(a[d]) - static_cast<double>(b[d]);
    sum += e * e;
  }
  return std::sqrt(sum);
}

/// Directions bind at the format's rank, rows are chosen by error alone.
inline LowRankOptions plain_options() {
  LowRankOptions options;
  options.energy = 1.0;
  options.coverage_bonus = 0;
  options.edge_bonus = 0;
  return options;
}

}  // namespace varve::format::test
