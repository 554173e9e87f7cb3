#include "eval/report/svg.h"

#include <algorithm>
#include <cmath>

#include "eval/report/format.h"

namespace varve::eval {
namespace {

// Pixels.
constexpr double kLeft = 90, kTop = 56, kWidth = 760, kPlotHeight = 340, kBottom = 56, kRight = 140;
constexpr double kCellWidth = 46, kCellHeight = 24, kRowLabel = 180;
constexpr double kForestRow = 20, kForestLabel = 300, kForestPlot = 420;
constexpr double kLabelHeight = 13;

std::string number(double v) {
  std::string out = print("%.2f", v);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string text(double x, double y, const std::string& css, const std::string& content) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\"" + (css.empty() ? "" : " class=\"" + css + "\"") + ">" +
         escape_markup(content) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& css) {
  return "<path class=\"" + css + "\" d=\"M" + number(x1) + " " + number(y1) + "L" + number(x2) + " " + number(y2) +
         "\"/>\n";
}

std::string frame(double width, double height, const std::string& title, const std::string& body) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"varve-eval\" viewBox=\"0 0 " + number(width) + " " +
         number(height) + "\" width=\"" + number(width) + "\" height=\"" + number(height) +
         "\" role=\"img\">\n<title>" + escape_markup(title) + "</title>\n" + text(12, 22, "head", title) + body +
         "</svg>\n";
}

/// 1, 2 or 5 times a power of ten: at most `most` steps to `span`.
double nice_step(double span, int most) {
  const double power = std::pow(10, std::floor(std::log10(span / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (span / (factor * power) <= most) return factor * power;
  }
  return 10 * power;
}

/// White to blue; share in [0, 1].
std::string fill_of(double share) {
  const double t = std::clamp(share, 0.0, 1.0);
  const auto mix = [t](double low, double high) { return static_cast<int>(std::lround(low + t * (high - low))); };
  return print("#%02x%02x%02x", mix(0xf2, 0x0b), mix(0xf6, 0x3d), mix(0xfc, 0x91));
}

/// Size of one character of a UTF-8 sequence that begins with `lead`; 0: no character begins so.
size_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

bool is_sequence(std::string_view bytes) {
  return std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; });
}

}  // namespace

std::string escape_markup(std::string_view in) {
  std::string out;
  for (size_t i = 0; i < in.size();) {
    const auto c = static_cast<unsigned char>(in[i]);
    const size_t n = sequence_bytes(c);
    if (n == 0 || i + n > in.size() || !is_sequence(in.substr(i, n))) {
      out += ' ';
      ++i;
      continue;
    }
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c < 0x20 || c == 0x7f) {
      out += ' ';
    } else {
      out += in.substr(i, n);
    }
    i += n;
  }
  return out;
}

const char* report_style() {
  return "<style>\n"
         "body{font:14px/1.45 system-ui,sans-serif;max-width:1100px;margin:24px auto;padding:0 16px;color:#222;"
         "background:#fff}\n"
         "table{border-collapse:collapse;margin:12px 0;font-size:13px}\n"
         "th,td{padding:3px 9px;border-bottom:1px solid #d5dade;text-align:right;white-space:nowrap}\n"
         "th:first-child,td:first-child,.left{text-align:left}\n"
         "tr.faint td{color:#888}\n"
         "svg.varve-eval{font:12px system-ui,sans-serif;max-width:100%;height:auto;display:block;margin:14px 0}\n"
         ".varve-eval text{fill:#222}\n"
         ".varve-eval .head{font-weight:600}\n"
         ".varve-eval .middle{text-anchor:middle}\n"
         ".varve-eval .end{text-anchor:end}\n"
         ".varve-eval .light{fill:#fff}\n"
         ".varve-eval .dark{fill:#111}\n"
         ".varve-eval .axis{stroke:#777;fill:none}\n"
         ".varve-eval .grid{stroke:#e3e7ea;fill:none}\n"
         ".varve-eval .floor{stroke:#999;stroke-dasharray:5 4;fill:none}\n"
         ".varve-eval .nothing{fill:#eceff1}\n"
         ".varve-eval .point{fill:#1b5fa8;stroke:#1b5fa8}\n"
         ".varve-eval .peer{fill:#fff;stroke:#c2185b;stroke-width:2}\n"
         ".varve-eval .range{stroke:#1b5fa8;stroke-width:2;fill:none}\n"
         ".varve-eval .faint{opacity:.4}\n"
         "@media (prefers-color-scheme:dark){\n"
         "body{color:#ddd;background:#14171a}\n"
         "th,td{border-color:#333a40}\n"
         ".varve-eval text{fill:#ddd}\n"
         ".varve-eval .grid{stroke:#2a3036}\n"
         ".varve-eval .nothing{fill:#24292e}\n"
         ".varve-eval .point,.varve-eval .range{stroke:#6db1f0}\n"
         ".varve-eval .point{fill:#6db1f0}\n"
         ".varve-eval .peer{fill:#14171a;stroke:#ff5c9a}\n"
         "}\n"
         "</style>\n";
}

std::string draw_scatter(const Scatter& s) {
  if (s.points.empty()) return "";
  double x_max = 0, y_min = s.points[0].y, y_max = s.points[0].y;
  for (const ScatterPoint& p : s.points) {
    x_max = std::max(x_max, p.x);
    y_min = std::min(y_min, p.y);
    y_max = std::max(y_max, p.y);
  }
  if (s.floor) {
    y_min = std::min(y_min, *s.floor);
    y_max = std::max(y_max, *s.floor);
  }
  const double low = std::floor(std::log10(y_min)), high = std::max(std::ceil(std::log10(y_max)), low + 1);
  const double step = nice_step(x_max * 1.05, 8), x_end = step * std::ceil(x_max * 1.02 / step);
  const double plot = kWidth - kLeft - kRight;
  const auto x_of = [&](double x) { return kLeft + plot * x / x_end; };
  const auto y_of = [&](double y) { return kTop + kPlotHeight * (high - std::log10(y)) / (high - low); };

  std::string body;
  for (double decade = low; decade <= high; decade += 1) {
    const double y = kTop + kPlotHeight * (high - decade) / (high - low);
    body += line(kLeft, y, kLeft + plot, y, "grid");
    body += text(kLeft - 8, y + 4, "end", print("1e%d", static_cast<int>(decade)));
  }
  for (double x = 0; x <= x_end + step / 2; x += step) {
    body += line(x_of(x), kTop + kPlotHeight, x_of(x), kTop + kPlotHeight + 5, "axis");
    body += text(x_of(x), kTop + kPlotHeight + 19, "middle", print("%.6g", x));
  }
  body += line(kLeft, kTop, kLeft, kTop + kPlotHeight, "axis");
  body += line(kLeft, kTop + kPlotHeight, kLeft + plot, kTop + kPlotHeight, "axis");
  body += text(kLeft + plot / 2, kTop + kPlotHeight + 40, "middle", s.x_label);
  body += text(12, kTop - 14, "", s.y_label);
  if (s.floor) {
    body += line(kLeft, y_of(*s.floor), kLeft + plot, y_of(*s.floor), "floor");
    body += text(kLeft + 6, y_of(*s.floor) - 5, "", s.floor_label);
  }
  std::vector<ScatterPoint> points = s.points;
  std::ranges::stable_sort(points, std::greater<>(), &ScatterPoint::y);
  std::vector<std::pair<double, double>> labels;  // corners of those drawn
  for (const ScatterPoint& p : points) {
    const double x = x_of(p.x), y = y_of(p.y);
    body += "<circle class=\"" + std::string(p.peer ? "peer" : "point") + "\" cx=\"" + number(x) + "\" cy=\"" +
            number(y) + "\" r=\"4.5\"><title>" +
            escape_markup(p.label + ": " + print("%.4g", p.x) + ", " + print("%.4g", p.y)) + "</title></circle>\n";
    double at = y + 4;
    const auto taken = [&](const auto& other) {
      return std::abs(other.first - x) < 110 && std::abs(other.second - at) < kLabelHeight;
    };
    while (std::ranges::any_of(labels, taken)) at += kLabelHeight / 2;
    labels.emplace_back(x, at);
    body += text(x + 9, at, "", p.label);
  }
  return frame(kWidth, kTop + kPlotHeight + kBottom, s.title, body);
}

std::string draw_heat_map(const HeatMap& map) {
  double low = 0, high = 1;
  if (map.logarithmic) {
    low = INFINITY;
    high = -INFINITY;
    for (const auto& row : map.cells) {
      for (const auto& cell : row) {
        if (!cell || *cell <= 0) continue;
        low = std::min(low, std::log10(*cell));
        high = std::max(high, std::log10(*cell));
      }
    }
    if (high <= low) high = low + 1;
  }
  std::string body;
  for (size_t c = 0; c < map.columns.size(); ++c) {
    body += text(kRowLabel + kCellWidth * (double(c) + 0.5), kTop + 12, "middle", map.columns[c]);
  }
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double y = kTop + 20 + kCellHeight * double(r);
    body += text(kRowLabel - 8, y + 16, "end", map.rows[r]);
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const auto& cell = map.cells[r][c];
      const double x = kRowLabel + kCellWidth * double(c);
      const double value = cell.value_or(0);
      const double share = !map.logarithmic ? value : value > 0 ? (std::log10(value) - low) / (high - low) : 0;
      body += "<rect " + (cell ? "fill=\"" + fill_of(share) + "\"" : std::string("class=\"nothing\"")) + " x=\"" +
              number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(kCellWidth - 1) + "\" height=\"" +
              number(kCellHeight - 1) + "\"/>\n";
      if (!cell) continue;
      body += text(x + kCellWidth / 2, y + 16, share > 0.5 ? "middle light" : "middle dark",
                   map.percent ? print("%.0f", 100 * value) : print("%.1g", value));
    }
  }
  const double bottom = kTop + 20 + kCellHeight * double(map.rows.size());
  body += text(kRowLabel + kCellWidth * double(map.columns.size()) / 2, bottom + 20, "middle", map.column_title);
  return frame(kRowLabel + kCellWidth * double(map.columns.size()) + 20, bottom + 32, map.title, body);
}

std::string draw_forest(const std::string& title, const std::vector<ForestRow>& rows) {
  double reach = 0.05;
  for (const ForestRow& r : rows) reach = std::max({reach, std::abs(r.lo), std::abs(r.hi)});
  const double step = nice_step(100 * reach, 4) / 100, end = step * std::ceil(reach / step);
  const auto x_of = [&](double v) { return kForestLabel + kForestPlot * (v + end) / (2 * end); };
  const double height = kForestRow * double(rows.size());
  std::string body;
  for (double v = -end; v <= end + step / 2; v += step) {
    const bool zero = std::abs(v) < step / 2;
    body += line(x_of(v), kTop, x_of(v), kTop + height, zero ? "axis" : "grid");
    body += text(x_of(v), kTop + height + 16, "middle", print("%+.3g", zero ? 0.0 : 100 * v));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const ForestRow& r = rows[i];
    const double y = kTop + kForestRow * (double(i) + 0.5);
    body += r.faint ? "<g class=\"faint\">\n" : "<g>\n";
    body += text(kForestLabel - 10, y + 4, "end", r.label);
    body += line(x_of(r.lo), y, x_of(r.hi), y, "range");
    body += "<circle class=\"point\" cx=\"" + number(x_of(r.value)) + "\" cy=\"" + number(y) + "\" r=\"4\"/>\n</g>\n";
  }
  body += text(kForestLabel + kForestPlot / 2, kTop + height + 36, "middle", "percentage points against dense");
  return frame(kForestLabel + kForestPlot + 30, kTop + height + 46, title, body);
}

}  // namespace varve::eval
