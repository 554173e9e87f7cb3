#include "cli/trace/svg.h"

#include <algorithm>
#include <cstdio>

#include "cli/terminal.h"
#include "cli/trace/tables.h"

namespace varve::cli {
namespace {

// Pixels.
constexpr double kLeft = 90, kPlotWidth = 960, kRight = 30, kTop = 70;
constexpr double kWidth = kLeft + kPlotWidth + kRight;
constexpr double kPanelHeight = 256, kLeastRowHeight = 3, kMostRowHeight = 16;
constexpr double kAreaHeight = 140;
constexpr double kTitleSpace = 14, kAxisSpace = 46;
constexpr size_t kTicks = 4;  // intervals

constexpr const char* kStyle =
    "<style>\n"
    ".varve-trace{font:12px system-ui,sans-serif}\n"
    ".varve-trace text{fill:#222}\n"
    ".varve-trace .end{text-anchor:end}\n"
    ".varve-trace .middle{text-anchor:middle}\n"
    ".varve-trace .head{font-weight:600}\n"
    ".varve-trace .paper{fill:#fff}\n"
    ".varve-trace .nowhere{fill:#eceff1}\n"
    ".varve-trace .recent{fill:#1b7f4b}\n"
    ".varve-trace .anchor{fill:#e69f00}\n"
    ".varve-trace .stale1{fill:#56a7d8}\n"
    ".varve-trace .stale2{fill:#b39ddb}\n"
    ".varve-trace .promotion{fill:#c2185b;stroke:#fff;stroke-width:.7}\n"
    ".varve-trace .axis{stroke:#777;fill:none}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".varve-trace text{fill:#ddd}\n"
    ".varve-trace .paper{fill:#14171a}\n"
    ".varve-trace .nowhere{fill:#24292e}\n"
    ".varve-trace .promotion{fill:#ff5c9a;stroke:#14171a}\n"
    "}\n"
    "</style>\n";

std::string number(double v) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.2f", v);
  std::string out = buffer;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string text(double x, double y, const std::string& css, const std::string& content) {
  return std::string("<text x=\"") + number(x) + "\" y=\"" + number(y) + "\"" +
         (css.empty() ? "" : " class=\"" + css + "\"") + ">" + escape_xml(content) + "</text>\n";
}

std::string rect(double x, double y, double width, double height, const std::string& css) {
  return "<rect class=\"" + css + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
         "\" height=\"" + number(height) + "\"/>\n";
}

std::string triangle(double x, double y) {
  return std::string("<path class=\"promotion\" d=\"M") + number(x) + " " + number(y) + "l-4 8h8z\"";
}

/// Row or column indices of a few ticks from 0 to n, both included.
std::vector<size_t> ticks(size_t n) {
  std::vector<size_t> out;
  for (size_t i = 0; i <= kTicks; ++i) {
    const size_t at = i * n / kTicks;
    if (out.empty() || at != out.back()) out.push_back(at);
  }
  return out;
}

class Drawing {
 public:
  explicit Drawing(const Picture& picture) : p_(picture) {}

  std::string draw() {
    const auto heading = describe_trace(p_);
    body_ += text(kLeft, 22, "head", heading[0]);
    body_ += text(kLeft, 40, "", heading[1]);
    if (p_.panels.empty()) {
      body_ += text(kLeft, kTop, "", "No page moved.");
      y_ = kTop + 20;
    } else {
      legend();
      for (size_t i = 0; i < p_.panels.size(); ++i) panel(i);
      area();
    }
    const std::string size = number(kWidth) + " " + number(y_);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"varve-trace\" viewBox=\"0 0 " + size + "\" width=\"" +
           number(kWidth) + "\" height=\"" + number(y_) + "\" role=\"img\">\n<title>" + escape_xml(heading[0]) +
           "</title>\n" + kStyle + rect(0, 0, kWidth, y_, "paper") + body_ + "</svg>\n";
  }

 private:
  double x_of(size_t column) const { return kLeft + kPlotWidth * double(column) / double(p_.columns); }
  double x_of_step(int64_t step) const {
    return kLeft + kPlotWidth * double(step - p_.survey.first_step) / double(p_.steps_per_column) / double(p_.columns);
  }

  void legend() {
    double x = kLeft;
    body_ += "<g class=\"legend\">\n";
    const auto entry = [&](const std::string& symbol, const std::string& label) {
      body_ += "<g class=\"entry\">\n" + symbol + text(x + 18, 62, "", label) + "</g>\n";
      x += 40 + 7.0 * double(label.size());
    };
    for (const cache::Tier tier : p_.tiers()) {
      std::string label = cache::tier_name(tier);
      for (const auto& [name, format] : p_.survey.header.tiers) {
        if (name == label) {
          label += " (" + format + ")";
          break;
        }
      }
      entry(rect(x, 52, 12, 12, cache::tier_name(tier)), label);
    }
    entry(rect(x, 52, 12, 12, "nowhere"), "no page");
    if (!p_.marks.empty()) entry(triangle(x + 6, 54) + "/>\n", "promotion");
    body_ += "</g>\n";
    y_ = kTop + 16;
  }

  void panel(size_t which) {
    const Panel& panel = p_.panels[which];
    const double row_height = std::clamp(kPanelHeight / double(panel.rows), kLeastRowHeight, kMostRowHeight);
    const double height = row_height * double(panel.rows);
    body_ += "<g class=\"panel\">\n";
    body_ += text(kLeft, y_, "head", panel_title(panel));
    const double top = y_ + kTitleSpace - 6;
    body_ += rect(kLeft, top, kPlotWidth, height, "nowhere");
    body_ += "<g class=\"cells\" shape-rendering=\"crispEdges\">\n";
    for (size_t r = 0; r < panel.rows; ++r) {
      for (size_t c = 0; c < panel.columns;) {
        const Place place = commonest(panel.cell(r, c));
        size_t end = c + 1;
        while (end < panel.columns && commonest(panel.cell(r, end)) == place) ++end;
        if (place) {
          body_ += rect(x_of(c), top + row_height * double(r), x_of(end) - x_of(c), row_height, place_name(place));
        }
        c = end;
      }
    }
    body_ += "</g>\n";
    for (const size_t r : ticks(panel.rows)) {
      const auto position = static_cast<int64_t>(r) * panel.pages_per_row * p_.survey.page_tokens;
      body_ += text(kLeft - 8, top + row_height * double(r) + 4, "end", std::to_string(position));
    }
    body_ += "<text class=\"middle\" transform=\"translate(" + number(14) + " " + number(top + height / 2) +
             ") rotate(-90)\">token position</text>\n";
    step_axis(top + height);
    marks(which, top, row_height);
    body_ += "</g>\n";
    y_ = top + height + kAxisSpace;
  }

  void marks(size_t which, double top, double row_height) {
    for (const PromotionMark& m : p_.marks) {
      if (m.panel != which) continue;
      body_ += triangle(x_of_step(m.event.step), top + row_height * (double(m.row) + 0.5) - 4) + "><title>" +
               escape_xml(describe_event(m.event) + ", " + format_bytes(m.event.to_bytes) + ", " +
                          number(m.event.microseconds) + " us") +
               "</title></path>\n";
    }
  }

  void step_axis(double y) {
    body_ += "<path class=\"axis\" d=\"M" + number(kLeft) + " " + number(y) + "h" + number(kPlotWidth) + "\"/>\n";
    for (const size_t c : ticks(p_.columns)) {
      const bool last = c == p_.columns;
      const int64_t step =
          last ? p_.survey.last_step : p_.survey.first_step + static_cast<int64_t>(c) * p_.steps_per_column;
      body_ += text(x_of(c), y + 15, last ? "end" : c == 0 ? "" : "middle", std::to_string(step));
    }
    body_ += text(kLeft + kPlotWidth / 8, y + 15, "middle", "step");
  }

  /// Bytes by tier, coarse tiers at the bottom.
  void area() {
    uint64_t most = 0;
    for (const TierAmounts& b : p_.bytes) {
      uint64_t all = 0;
      for (const uint64_t bytes : b) all += bytes;
      most = std::max(most, all);
    }
    body_ += "<g class=\"bytes\">\n";
    body_ += text(kLeft, y_, "head", "bytes by tier, of the pages that sessions hold (a shared page once)");
    const double top = y_ + kTitleSpace - 6, bottom = top + kAreaHeight;
    const auto y_of = [&](uint64_t bytes) {
      return most == 0 ? bottom : bottom - kAreaHeight * double(bytes) / double(most);
    };
    std::vector<uint64_t> below(p_.bytes.size(), 0);
    std::vector<cache::Tier> tiers = p_.tiers();
    std::reverse(tiers.begin(), tiers.end());
    for (const cache::Tier tier : tiers) {
      std::vector<uint64_t> above = below;
      for (size_t c = 0; c < above.size(); ++c) above[c] += p_.bytes[c][static_cast<size_t>(tier)];
      body_ += std::string("<path class=\"") + cache::tier_name(tier) + "\" d=\"M" + number(x_of(0)) + " " +
               number(y_of(above[0]));
      const auto line_to = [&](char direction, double at) { (body_ += direction) += number(at); };
      for (size_t c = 0; c < above.size(); ++c) {  // the upper edge, left to right
        if (c > 0 && above[c] != above[c - 1]) {
          line_to('H', x_of(c));
          line_to('V', y_of(above[c]));
        }
      }
      line_to('H', x_of(above.size()));
      line_to('V', y_of(below.back()));
      for (size_t c = below.size() - 1; c > 0; --c) {  // the lower one back
        if (below[c - 1] != below[c]) {
          line_to('H', x_of(c));
          line_to('V', y_of(below[c - 1]));
        }
      }
      line_to('H', x_of(0));
      body_ += "Z\"/>\n";
      below = std::move(above);
    }
    for (const uint64_t bytes : {uint64_t{0}, most / 2, most}) {
      body_ += text(kLeft - 8, y_of(bytes) + 4, "end", format_bytes(bytes));
      if (most == 0) break;
    }
    step_axis(bottom);
    body_ += "</g>\n";
    y_ = bottom + kAxisSpace - 20;
  }

  const Picture& p_;
  std::string body_;
  double y_ = 0;
};

std::string html_table(const std::string& title, const Table& table) {
  std::string out = "<h2>" + escape_xml(title) + "</h2>\n<table>\n<tr>";
  const auto cell = [&](const char* tag, size_t c, const std::string& content) {
    out += std::string("<") + tag + (table.columns[c].right ? " class=\"right\"" : "") + ">" + escape_xml(content) +
           "</" + tag + ">";
  };
  for (size_t c = 0; c < table.columns.size(); ++c) cell("th", c, table.columns[c].name);
  out += "</tr>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) cell("td", c, row[c]);
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string html_list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = "<h2>" + escape_xml(title) + "</h2>\n<ul>\n";
  for (const std::string& line : lines) out += "<li>" + escape_xml(line) + "</li>\n";
  return out + "</ul>\n";
}

/// Bytes of the UTF-8 character at `text[i]`, and its code point; 0 bytes when it is invalid.
size_t decode(std::string_view text, size_t i, uint32_t* code) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(i);
  const size_t size = lead < 0x80 ? 1 : lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (size == 0 || lead >= 0xF5 || i + size > text.size()) return 0;
  *code = size == 1 ? lead : lead & (0xFFu >> (size + 1));
  for (size_t k = 1; k < size; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
    *code = *code << 6 | (byte(i + k) & 0x3Fu);
  }
  const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  return *code >= least[size] && *code <= 0x10FFFF ? size : 0;
}

}  // namespace

std::string escape_xml(std::string_view content) {
  std::string out;
  for (size_t i = 0; i < content.size();) {
    uint32_t code = 0;
    const size_t size = decode(content, i, &code);
    if (size == 0) {
      out += '?';
      ++i;
      continue;
    }
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (control || surrogate || code == 0xFFFE || code == 0xFFFF) {
      out += ' ';
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else if (code == '"') {
      out += "&quot;";
    } else if (code == '\'') {
      out += "&#39;";
    } else {
      out += content.substr(i, size);
    }
    i += size;
  }
  return out;
}

std::string draw_svg(const Picture& picture) { return Drawing(picture).draw(); }

std::string draw_html(const Picture& picture) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Lifecycle of " +
                    escape_xml(picture.survey.path) +
                    "</title>\n<style>\n"
                    ":root{color-scheme:light dark}\n"
                    "body{font:14px system-ui,sans-serif;margin:24px;color:#222;background:#fff}\n"
                    "h2{font-size:15px;margin:20px 0 6px}\n"
                    "svg{max-width:100%;height:auto}\n"
                    "table{border-collapse:collapse}\n"
                    "th,td{text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid #ccc}\n"
                    ".right{text-align:right}\n"
                    "@media (prefers-color-scheme:dark){body{color:#ddd;background:#14171a}th,td{border-color:#444}}\n"
                    "</style>\n</head>\n<body>\n" +
                    draw_svg(picture);
  if (!picture.panels.empty()) {
    out += html_table("Bytes by tier", bytes_table(picture)) + html_table("Moves", moves_table(picture));
    if (!picture.marks.empty()) out += html_table("Promotions", promotions_table(picture, kMostMarks));
    out += html_list("Costs", describe_costs(picture));
  }
  return out + html_list("Notes", picture.notes()) + "</body>\n</html>\n";
}

}  // namespace varve::cli
