#pragma once
// Turns the rows of a page into a low-rank block: delta from the anchor, balanced, randomised SVD, choice of exact
// rows.

#include <span>
#include <vector>

#include "format/lr/block.h"

namespace varve::format {

/// A span of tokens that is kept whole or not at all, page offsets.
struct TokenRun {
  int begin = 0, end = 0;
  bool asked = false;  ///< the query asks for it: before all others
  bool operator==(const TokenRun&) const = default;
};

/// What the content of a page says about which rows should be exact. Made from the tokens' texts; see content/traits.h.
struct TokenTraits {
  std::vector<float> boost;    ///< [tokens] multiplies the reconstruction error; 1: nothing special; empty: all 1
  std::vector<TokenRun> runs;  ///< disjoint, ascending
  float rank_boost = 1.0f;     ///< of the page's rank below the format's ceiling, for digits and formulas
};

struct LowRankOptions {
  double energy = 0.9999;  ///< least share of the delta's energy that directions keep, up to the format's rank
  int least_rank = 4;
  uint64_t seed = 1234;  ///< of the sketch
  int oversample = 5;    ///< sketch width beyond the rank
  int power_iterations = 2;
  bool operator==(const LowRankOptions&) const = default;
};

struct BlockReport {
  int rank = 0;
  int rows = 0;
  double retained_energy = 0;
  int rows_of_runs = 0;   ///< exact rows that belong to a run
  int runs_left_out = 0;  ///< runs that did not fit the budget
  int rows_lost = 0;      ///< rows with NaN or infinity: kept exact so that they stay lost, and nothing else is
};

/// k, v: [tokens][kv_heads * head_dim] fp32, keys in the block's frame. block: block_bytes(shape).
/// Rows [0, skip) are read from elsewhere (sinks): they take no exact row and no weight in the SVD, except row 0, the
/// anchor. Deterministic by seed. A page whose rows are all equal has rank 0 directions of energy and decodes exactly.
BlockReport encode_block(const BlockShape& shape, const LowRankOptions& options, const TokenTraits& traits, int skip,
                         const float* k, const float* v, uint8_t* block);

}  // namespace varve::format
