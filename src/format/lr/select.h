#pragma once
// Which rows of a low-rank block are kept exact. One choice for keys and values together.

#include <cstdint>
#include <span>
#include <vector>

#include "format/lr/encode.h"

namespace varve::format {

/// What may become of a row.
enum class RowState : uint8_t {
  kFree,         ///< exact or not, by its error
  kNeverNeeded,  ///< the anchor, or read from elsewhere
  kLost,         ///< exact before all others
};

struct RowCandidates {
  std::span<const float> error;      ///< [tokens] joint reconstruction error over what the reader will read
  std::span<const float> collision;  ///< [tokens] 0 to 1: how far the row's key became that of the row before it
  std::span<const RowState> state;   ///< [tokens]
};

struct RowSelection {
  std::vector<uint16_t> rows;  ///< ascending
  int rows_of_runs = 0;
  int runs_left_out = 0;
};

/// At most `budget` rows (lost rows must fit). Lost rows first; then runs that were asked for, then other runs and
/// single rows, by their mean score per row that they take: boost x error x (1 + edge bonus x collision), and the
/// coverage bonus for the best of each tile. A run is taken whole or not at all: with one that does not fit, none of
/// its rows is taken. Rows without error are never taken alone.
RowSelection select_rows(const RowCandidates& candidates, const TokenTraits& traits, const LowRankOptions& options,
                         int budget);

}  // namespace varve::format
