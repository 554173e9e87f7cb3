#include "cli/trace/terminal_picture.h"

#include <algorithm>

#include "cli/trace/tables.h"

namespace varve::cli {
namespace {

constexpr int kLinesAroundPanel = 3;  // title, axis, blank
constexpr size_t kLeastCells = 10;
constexpr size_t kListedPromotions = 10;

const char* tier_colour(char letter) {
  switch (letter) {
    case 'R': return "\x1b[32m";
    case 'A': return "\x1b[1;33m";
    case '1': return "\x1b[36m";
    case '2': return "\x1b[35m";
    default: return "\x1b[90m";
  }
}

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

/// Characters of UTF-8 text.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string pad(const std::string& text, size_t columns, bool right) {
  const std::string blanks(columns > width(text) ? columns - width(text) : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string paint(const std::string& letters, bool colour) {
  if (!colour) return letters;
  std::string out;
  for (size_t i = 0; i < letters.size(); ++i) {
    if (i == 0 || letters[i] != letters[i - 1]) out += tier_colour(letters[i]);
    out += letters[i];
  }
  return out + "\x1b[0m";
}

std::string draw_axis(const Picture& picture, size_t gutter, size_t cells) {
  const std::string first = std::to_string(picture.survey.first_step), last = std::to_string(picture.survey.last_step);
  const std::string label = pad("step", gutter, true) + "  ";
  if (first == last) return label + first + "\n";
  if (first.size() + last.size() + 1 > cells) return label + first + " to " + last + "\n";
  return label + first + std::string(cells - first.size() - last.size(), ' ') + last + "\n";
}

std::string draw_panel(const Picture& picture, const Panel& fine, size_t rows, size_t columns, bool colour) {
  const int64_t page_tokens = picture.survey.page_tokens;
  const size_t gutter = std::max<size_t>(4, std::to_string(fine.span.last_page_start).size());
  const size_t room = std::max(kLeastCells, columns > gutter + 2 ? columns - gutter - 2 : 0);
  const size_t across = divide_up(fine.columns, room);
  const Panel panel = fine.coarsened(divide_up(fine.rows, rows), across);
  std::string out = panel_title(panel) + "\n";
  for (size_t r = 0; r < panel.rows; ++r) {
    std::string letters;
    for (size_t c = 0; c < panel.columns; ++c) letters += tier_letter(commonest(panel.cell(r, c)));
    out += pad(std::to_string(static_cast<int64_t>(r) * panel.pages_per_row * page_tokens), gutter, true) + "  " +
           paint(letters, colour) + "\n";
  }
  return out + draw_axis(picture, gutter, panel.columns) + "\n";
}

std::string draw_legend(bool colour) {
  std::string out;
  for (size_t t = 0; t < cache::kTiers; ++t) {
    const auto tier = static_cast<cache::Tier>(t);
    out += paint(std::string(1, tier_letter(tier)), colour) + " " + cache::tier_name(tier) + "   ";
  }
  out += paint(".", colour) + " no page\n";
  out += "Rows begin at the position on the left. A cell of several pages or steps shows the commonest tier\n";
  return out + "there, the coarser of two equal ones. Pages still being filled are in no trace.\n\n";
}

std::string draw_table(const Table& table) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    size_t most = width(table.columns[c].name);
    for (const auto& row : table.rows) most = std::max(most, width(printable(row[c])));
    widths.push_back(most);
  }
  std::string out;
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (size_t c = 0; c < widths.size(); ++c) text += "  " + pad(text_of(c), widths[c], table.columns[c].right);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  line([&](size_t c) { return table.columns[c].name; });
  for (const auto& row : table.rows) line([&](size_t c) { return printable(row[c]); });
  return out;
}

}  // namespace

char tier_letter(Place place) {
  if (!place) return '.';
  switch (*place) {
    case cache::Tier::kRecent: return 'R';
    case cache::Tier::kAnchor: return 'A';
    case cache::Tier::kStale1: return '1';
    case cache::Tier::kStale2: return '2';
    case cache::Tier::kCount: break;
  }
  return '?';
}

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which some terminals obey, are 0xC2 0x80 to 0xC2 0x9F.
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) ++i;
    out += c1 || c < 0x20 || c == 0x7F ? ' ' : text[i];
  }
  return out;
}

std::string draw_terminal(const Picture& picture, const Canvas& canvas) {
  std::string out;
  const auto heading = describe_trace(picture);
  for (size_t i = 0; i < heading.size(); ++i) out += (i == 0 ? "" : "  ") + printable(heading[i]) + "\n";
  out += "\n";
  if (!picture.panels.empty()) {
    const int share = canvas.lines / static_cast<int>(picture.panels.size()) - kLinesAroundPanel;
    const auto rows = static_cast<size_t>(std::max(share, kLeastPanelRows));
    for (const Panel& panel : picture.panels) {
      out += draw_panel(picture, panel, rows, static_cast<size_t>(std::max(canvas.columns, 20)), canvas.colour);
    }
    out += draw_legend(canvas.colour);
    out += "Bytes of the pages that sessions hold, a shared page once:\n" + draw_table(bytes_table(picture)) + "\n";
    out += "Moves:\n" + draw_table(moves_table(picture)) + "\n";
    if (!picture.marks.empty()) {
      const bool all = picture.marks.size() <= kListedPromotions && picture.unmarked == 0;
      out += all ? "Promotions:\n" : "The first " + std::to_string(kListedPromotions) + " promotions:\n";
      out += draw_table(promotions_table(picture, kListedPromotions)) + "\n";
    }
    for (const std::string& line : describe_costs(picture)) out += printable(line) + "\n";
  } else {
    out += "No page moved.\n";
  }
  for (const std::string& note : picture.notes()) out += "note: " + printable(note) + "\n";
  return out;
}

}  // namespace varve::cli
