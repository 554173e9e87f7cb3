#pragma once
// Pictures of a report as SVG: self-contained, no scripts, light and dark by the viewer's preference. The same figures
// always give the same text.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::eval {

/// Text between tags or in an attribute: the five characters escaped; control characters and bytes that are not UTF-8
/// become spaces.
std::string escape_markup(std::string_view text);

/// Style sheet of the pictures and of the page around them.
const char* report_style();

struct ScatterPoint {
  std::string label;
  double x = 0, y = 0;  ///< y > 0: its axis is logarithmic
  bool peer = false;    ///< drawn hollow
};

struct Scatter {
  std::string title, x_label, y_label;
  std::vector<ScatterPoint> points;
  std::optional<double> floor;  ///< a dashed line: differences below it are rounding
  std::string floor_label;
};
/// Empty when there is no point.
std::string draw_scatter(const Scatter& scatter);

struct HeatMap {
  std::string title, column_title;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<std::optional<double>>> cells;  ///< [rows][columns]
  bool logarithmic = false;  ///< colours by the logarithm, lowest to highest value; else 0 to 1
  bool percent = false;      ///< how a value is written
};
std::string draw_heat_map(const HeatMap& map);

struct ForestRow {
  std::string label;
  double value = 0, lo = 0, hi = 0;
  bool faint = false;  ///< says little
};
/// Differences with their intervals beside a line at 0, in percentage points.
std::string draw_forest(const std::string& title, const std::vector<ForestRow>& rows);

}  // namespace varve::eval
