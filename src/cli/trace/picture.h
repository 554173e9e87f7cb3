#pragma once
// The second reading of a trace: what every page was at every step, on a grid of bounded size, and the bytes by tier
// over time. Both outputs, terminal and SVG, are drawn from it.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/trace/survey.h"

namespace varve::cli {

/// Bounds of the picture, whatever the trace holds. 480 columns of 2 pixels are as wide as a page shows.
inline constexpr int64_t kMostColumns = 480;
inline constexpr int64_t kMostRows = 128;
inline constexpr size_t kMostPanels = 12;
inline constexpr size_t kMostMarks = 500;

/// By tier: page-steps in a cell, or bytes.
using TierAmounts = std::array<uint64_t, cache::kTiers>;

/// The tier with the largest amount, the coarser of two equal ones; nowhere when all are 0.
Place commonest(const TierAmounts& amounts);

/// A grid of cells: what was there in steps_per_column steps and pages_per_row pages.
struct Panel {
  PanelKey key;
  PanelSpan span;
  int64_t steps_per_column = 1, pages_per_row = 1;
  size_t rows = 0, columns = 0;
  std::vector<TierAmounts> cells;  ///< [row * columns + column], page-steps

  const TierAmounts& cell(size_t row, size_t column) const { return cells[row * columns + column]; }
  /// The same with each `down` rows and `across` columns summed into one.
  Panel coarsened(size_t down, size_t across) const;
};

/// A promotion, where the picture marks it.
struct PromotionMark {
  size_t panel;  ///< index of Picture::panels
  size_t row;
  TraceEvent event;
};

struct Picture {
  TraceSurvey survey;
  int64_t steps_per_column = 1;
  size_t columns = 0;
  std::vector<Panel> panels;         ///< the first kMostPanels in order of session and window
  std::vector<TierAmounts> bytes;    ///< by column: held after the column's last step, a shared page once
  std::vector<PromotionMark> marks;  ///< the first kMostMarks of the panels drawn
  uint64_t unmarked = 0;             ///< promotions of these panels beyond them
  uint64_t unseen_before = 0;        ///< pages whose first event moves them out of a tier
  uint64_t contradictions = 0;       ///< moves out of another tier than the one the page was in

  /// The tiers that a page was moved into, in order.
  std::vector<cache::Tier> tiers() const;
  /// The last step that a column covers.
  int64_t column_end(size_t column) const;
  /// What a reader of the picture must know: cuts, bounds that were met, contradictions. One sentence each.
  std::vector<std::string> notes() const;
};

/// Reads the trace twice. session: only its pages are drawn and counted.
Result<Picture> read_picture(const std::string& path, std::optional<uint64_t> session,
                             const TraceProgress& progress = nullptr);

}  // namespace varve::cli
