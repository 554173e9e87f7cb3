#include "cli/trace/tables.h"

#include <cstdio>

#include "cli/terminal.h"

namespace varve::cli {
namespace {

constexpr size_t kPoints = 5;
constexpr size_t kShownReasons = 10;

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string microseconds(double us) {
  if (us == 0) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, us < 100 ? "%.1f us" : "%.0f us", us);
  return buffer;
}

}  // namespace

std::string with_commas(uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string panel_name(const PanelKey& key) {
  std::string out = "session " + std::to_string(key.session);
  if (key.window > 0) out += ", window " + std::to_string(key.window);
  return out;
}

std::string plural(uint64_t n, const std::string& noun) { return with_commas(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string panel_title(const Panel& panel) {
  return panel_name(panel.key) + ": a column is " + plural(static_cast<uint64_t>(panel.steps_per_column), "step") +
         ", a row " + plural(static_cast<uint64_t>(panel.pages_per_row), "page");
}

std::string describe_event(const TraceEvent& e) {
  std::string out = "step " + std::to_string(e.step) + ", " + panel_name({e.session, e.window}) + ", position " +
                    std::to_string(e.page_start) + ": " + or_dash(place_name(e.from)) + " to " +
                    or_dash(place_name(e.to));
  if (!e.why.empty() || !e.how.empty()) out += " (" + or_dash(e.why) + ", " + or_dash(e.how) + ")";
  return out;
}

std::vector<std::string> describe_trace(const Picture& picture) {
  const TraceSurvey& s = picture.survey;
  std::string run = s.path;
  if (!s.header.model.empty()) run += ": " + s.header.model;
  if (!s.header.profile.empty()) run += ", profile " + s.header.profile;
  if (!s.header.tiers.empty()) {
    std::string list;
    for (const auto& [tier, format] : s.header.tiers) list += (list.empty() ? "" : ", ") + tier + " " + format;
    run += " (" + list + ")";
  }
  std::string extent = plural(s.events, "event");
  if (s.events > 0) {
    uint64_t sessions = 0;
    const PanelKey* before = nullptr;
    for (const auto& [key, span] : s.panels) {
      sessions += before == nullptr || before->session != key.session;
      before = &key;
    }
    extent += " of " + plural(sessions, "session") + ", steps " + std::to_string(s.first_step) + " to " +
              std::to_string(s.last_step) + ", pages of " + std::to_string(s.page_tokens) + " tokens";
    if (s.header.recent_tokens > 0) extent += ", " + std::to_string(s.header.recent_tokens) + " recent tokens";
  }
  return {run, extent};
}

Table bytes_table(const Picture& picture) {
  Table out;
  out.columns.push_back({"after step", true});
  const auto tiers = picture.tiers();
  for (const cache::Tier tier : tiers) out.columns.push_back({cache::tier_name(tier), true});
  out.columns.push_back({"all", true});
  const size_t points = std::min(kPoints, picture.bytes.size());
  for (size_t i = 0; i < points; ++i) {
    const size_t column = points == 1 ? 0 : i * (picture.bytes.size() - 1) / (points - 1);
    std::vector<std::string> row = {std::to_string(picture.column_end(column))};
    uint64_t all = 0;
    for (const cache::Tier tier : tiers) {
      const uint64_t bytes = picture.bytes[column][static_cast<size_t>(tier)];
      row.push_back(format_bytes(bytes));
      all += bytes;
    }
    row.push_back(format_bytes(all));
    out.rows.push_back(std::move(row));
  }
  return out;
}

Table moves_table(const Picture& picture) {
  Table out;
  out.columns = {{"from"},
                 {"to"},
                 {"why"},
                 {"how"},
                 {"published", true},
                 {"abandoned", true},
                 {"refused", true},
                 {"written", true},
                 {"slowest", true}};
  for (const auto& [key, count] : picture.survey.moves) {
    out.rows.push_back({or_dash(place_name(key.from)), or_dash(place_name(key.to)), or_dash(key.why), or_dash(key.how),
                        with_commas(count.published), with_commas(count.abandoned), with_commas(count.refused),
                        format_bytes(count.bytes), microseconds(count.most_microseconds)});
  }
  return out;
}

Table promotions_table(const Picture& picture, size_t most) {
  Table out;
  out.columns = {{"step", true}, {"session", true}, {"window", true}, {"position", true}, {"from"},      {"to"},
                 {"why"},        {"how"},           {"score", true},  {"written", true},  {"took", true}};
  for (size_t i = 0; i < std::min(most, picture.marks.size()); ++i) {
    const TraceEvent& e = picture.marks[i].event;
    char score[32] = "-";
    if (e.score) std::snprintf(score, sizeof score, "%.4g", *e.score);
    out.rows.push_back({std::to_string(e.step), std::to_string(e.session),
                        e.window > 0 ? std::to_string(e.window) : "-", std::to_string(e.page_start), place_name(e.from),
                        place_name(e.to), or_dash(e.why), or_dash(e.how), score, format_bytes(e.to_bytes),
                        microseconds(e.microseconds)});
  }
  return out;
}

std::vector<std::string> describe_costs(const Picture& picture) {
  const TraceSurvey& s = picture.survey;
  std::vector<std::string> out;
  std::string promotions = "promotions: " + with_commas(s.promotions.published);
  if (s.promotions.published > 0) promotions += ", " + format_bytes(s.promotions.bytes) + " written";
  if (s.promotions.lossy > 0) promotions += ", " + with_commas(s.promotions.lossy) + " of them lossy";
  out.push_back(promotions);
  if (s.slowest) {
    out.push_back("slowest: " + microseconds(s.slowest->microseconds) + " at " + describe_event(*s.slowest));
  }
  std::string refused;
  size_t shown = 0;
  for (const auto& [reason, count] : s.refused) {
    if (shown++ == kShownReasons) {
      refused += " and " + plural(s.refused.size() - kShownReasons, "more reason");
      break;
    }
    refused += (refused.empty() ? "" : ", ") + or_dash(reason) + " " + with_commas(count);
  }
  out.push_back(std::string("refused: ") + (refused.empty() ? "none" : refused));
  return out;
}

}  // namespace varve::cli
