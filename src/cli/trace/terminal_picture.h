#pragma once
// The picture as characters: one a cell, R A 1 2 for the tiers, . for no page.

#include <string>

#include "cli/trace/picture.h"

namespace varve::cli {

struct Canvas {
  int columns = 100;
  int lines = 40;  ///< that the panels share, each with at least kLeastPanelRows
  bool colour = false;
};
inline constexpr int kLeastPanelRows = 4;

char tier_letter(Place place);

/// Text without control characters (they become spaces), so that a file cannot steer the terminal.
std::string printable(std::string_view text);

/// Panels, bytes over time, tables and notes. No line of a panel is wider than canvas.columns (at least 20).
std::string draw_terminal(const Picture& picture, const Canvas& canvas);

}  // namespace varve::cli
