#include "eval/report/html.h"

#include <algorithm>
#include <cmath>

#include "base/build_info.h"
#include "eval/report/format.h"
#include "eval/run/plan.h"

namespace varve::eval {
namespace {

constexpr size_t kDepthBins = 10;

std::string cell(const std::string& content, bool left = false) {
  return (left ? "<td class=\"left\">" : "<td>") + escape_markup(content) + "</td>";
}

std::string header(const std::vector<std::string>& names) {
  std::string out = "<tr>";
  for (const std::string& n : names) out += "<th>" + escape_markup(n) + "</th>";
  return out + "</tr>\n";
}

std::string arm_table(const Summary& summary) {
  std::string out =
      "<table>\n" + header({"arm", "length", "n", "mean KL", "95 %", "median", "p99", "p99.9", "max", "same top",
                            "PPL x", "bytes/token", "payload", "metadata", "scratch", "allocated", "ratio", "profile"});
  for (const ArmRow& a : summary.arms) {
    const std::string interval =
        a.kld_interval ? print_kl(a.kld_interval->lo) + " to " + print_kl(a.kld_interval->hi) : std::string();
    out += "<tr>" + cell(a.arm) + cell(print_length(a.length)) + cell(std::to_string(a.n)) +
           cell(print_kl(a.kld_mean)) + cell(interval) + cell(print_kl(a.kld_median)) + cell(print_kl(a.kld_p99)) +
           cell(print_kl(a.kld_p999)) + cell(print_kl(a.kld_max)) + cell(print("%.2f%%", 100 * a.same_top1)) +
           cell(print("%.4f", a.ppl_ratio)) + cell(print("%.0f", a.bytes_per_token)) +
           cell(print("%.0f", a.payload_per_token)) + cell(print("%.0f", a.metadata_per_token)) +
           cell(print("%.0f", a.scratch_per_token)) + cell(print("%.0f", a.allocated_per_token)) +
           cell(print("%.2fx", a.ratio)) + cell(a.profile_digest, true) + "</tr>\n";
  }
  return out + "</table>\n";
}

std::string task_table(const Summary& summary) {
  std::string out =
      "<table>\n" + header({"task", "length", "arm", "n", "groups", "shortened", "dense", "score", "delta",
                            "95 % of delta", "by", "wins", "losses", "McNemar p", "what n can show"});
  for (const TaskRow& t : summary.tasks) {
    out += (t.discriminative ? "<tr>" : "<tr class=\"faint\">") + cell(t.task) + cell(print_length(t.length)) +
           cell(t.arm, true) + cell(std::to_string(t.n)) + cell(std::to_string(t.groups)) +
           cell(std::to_string(t.shortened)) + cell(print("%.1f%%", 100 * t.dense_score)) +
           cell(print("%.1f%%", 100 * t.score)) + cell(print("%+.1f pp", 100 * t.delta)) +
           cell(print("%+.1f to %+.1f", 100 * t.interval.lo, 100 * t.interval.hi)) + cell(t.method, true) +
           cell(std::to_string(t.wins)) + cell(std::to_string(t.losses)) + cell(print("%.2g", t.p)) +
           cell((t.discriminative ? "" : "Non-discriminative: dense is below 50 %. ") + t.shows, true) + "</tr>\n";
  }
  return out + "</table>\n";
}

std::string strata_table(const Summary& summary) {
  std::string rows;
  for (const ArmRow& a : summary.arms) {
    for (const auto& [name, s] : a.strata) {
      if (a.kld_mean == 0) continue;
      rows += "<tr>" + cell(a.arm) + cell(print_length(a.length)) + cell(name, true) + cell(std::to_string(s.n)) +
              cell(print_kl(s.kl_sum / double(s.n))) + cell(print("%.2f%%", 100 * double(s.same_top) / double(s.n))) +
              "</tr>\n";
    }
  }
  if (rows.empty()) return "";
  return "<h2>By place in the text and kind of token</h2>\n<table>\n" +
         header({"arm", "length", "tokens", "n", "mean KL", "same top"}) + rows + "</table>\n";
}

std::vector<int> lengths_of(const Summary& summary) {
  std::vector<int> out;
  for (const ArmRow& a : summary.arms) {
    if (std::ranges::find(out, a.length) == out.end()) out.push_back(a.length);
  }
  return out;
}

std::string scatter(const Summary& summary, int length) {
  Scatter s;
  s.title = "Divergence from dense against bytes, " + print_length(length) + " tokens";
  s.x_label = "bytes of KV cache per token";
  s.y_label = "mean KL (nats)";
  for (const ArmRow& a : summary.arms) {
    if (a.length != length || a.kld_mean <= 0) continue;
    if (a.arm == "floor") {
      s.floor = a.kld_mean;
      s.floor_label = "floor (rounding)";
    } else {
      s.points.push_back(
          {.label = a.arm, .x = a.bytes_per_token, .y = a.kld_mean, .peer = a.profile_digest.starts_with("llama.cpp")});
    }
  }
  return draw_scatter(s);
}

std::string forest(const Summary& summary, int length) {
  std::vector<ForestRow> rows;
  for (const TaskRow& t : summary.tasks) {
    if (t.length != length) continue;
    rows.push_back({.label = t.task + ", " + t.arm,
                    .value = t.delta,
                    .lo = t.interval.lo,
                    .hi = t.interval.hi,
                    .faint = !t.discriminative});
  }
  return rows.empty() ? "" : draw_forest("Scores against dense, " + print_length(length) + " tokens, 95 %", rows);
}

std::string sensitivity(const LayerSensitivity& s) {
  HeatMap map;
  map.title = "What each codec costs in each layer alone (KL in nats a token), from the profile " + s.profile;
  map.column_title = "layer";
  map.rows = s.codecs;
  map.columns = s.layers;
  map.cells = s.kl;
  map.logarithmic = true;
  return draw_heat_map(map);
}

}  // namespace

std::optional<LayerSensitivity> layer_sensitivity(const Profile& profile) {
  const auto record = nlohmann::ordered_json::parse(profile.calibration, nullptr, false);
  if (!record.is_object() || !record.contains("layers") || !record["layers"].is_array()) return {};
  LayerSensitivity out;
  out.profile = profile.name;
  for (const auto& layer : record["layers"]) {
    if (!layer.is_object()) return {};
    out.layers.push_back(layer.contains("layer") ? layer["layer"].dump() : "?");
    for (const char* side : {"k", "v"}) {
      if (!layer.contains(side) || !layer[side].is_object()) continue;
      for (const auto& [codec, cost] : layer[side].items()) {
        const size_t row = static_cast<size_t>(std::ranges::find(out.codecs, side + codec) - out.codecs.begin());
        if (row == out.codecs.size()) {
          out.codecs.push_back(side + codec);
          out.kl.emplace_back();
        }
        out.kl[row].resize(out.layers.size());
        if (cost.is_object() && cost.contains("kl") && cost["kl"].is_number()) {
          out.kl[row].back() = cost["kl"].get<double>();
        }
      }
    }
  }
  for (auto& row : out.kl) row.resize(out.layers.size());
  return out.codecs.empty() ? std::nullopt : std::optional(out);
}

HeatMap depth_map(const std::vector<ItemRecord>& records, int length) {
  struct Mean {
    double sum = 0;
    int n = 0;
  };
  HeatMap map;
  map.title = "Score in percent by depth of what is asked for, " + print_length(length) + " tokens";
  map.column_title = "depth in the context, from";
  map.percent = true;
  for (size_t b = 0; b < kDepthBins; ++b) map.columns.push_back(print("%zu%%", 100 * b / kDepthBins));
  std::vector<std::vector<Mean>> means;
  for (const ItemRecord& r : records) {
    if (r.length != length || r.depths.empty()) continue;
    size_t row = static_cast<size_t>(std::ranges::find(map.rows, r.arm) - map.rows.begin());
    if (row == map.rows.size()) {
      map.rows.push_back(r.arm);
      means.emplace_back(kDepthBins);
    }
    for (const double depth : r.depths) {
      const double bin = std::clamp(std::floor(depth * double(kDepthBins)), 0.0, double(kDepthBins - 1));
      Mean& mean = means[row][static_cast<size_t>(bin)];
      mean.sum += r.score;
      ++mean.n;
    }
  }
  for (const auto& row : means) {
    auto& cells = map.cells.emplace_back();
    for (const Mean& m : row) cells.push_back(m.n > 0 ? std::optional(m.sum / m.n) : std::nullopt);
  }
  return map;
}

std::string html_report(const Summary& summary, const std::vector<ItemRecord>& records,
                        const std::vector<LayerSensitivity>& sensitivities, const std::string& command) {
  const BuildInfo& build = build_info();
  const std::string title = summary.suite + " on " + summary.model;
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\n<title>" +
                    escape_markup(title) + "</title>\n" + report_style() + "</head>\n<body>\n<h1>" +
                    escape_markup(title) + "</h1>\n";
  out += "<p>Mode " + summary.mode +
         (summary.mode == "B" ? " (each arm reads over its own compressed pages)"
                              : " (pages are compressed after the dense arm read the context)") +
         ", seed " + std::to_string(summary.seed) + ", model " + escape_markup(summary.model_digest) + ".<br>varve " +
         build.version + " (" + escape_markup(build.compiler) + "), " + escape_markup(build.llama_cpp) + ", " +
         escape_markup(machine_info().cpu) + ".<br><code>" + escape_markup(command) + "</code></p>\n";
  for (const int length : lengths_of(summary)) {
    out += scatter(summary, length);
    out += forest(summary, length);
    const HeatMap depths = depth_map(records, length);
    if (!depths.rows.empty()) out += draw_heat_map(depths);
  }
  for (const LayerSensitivity& s : sensitivities) out += sensitivity(s);
  out += summary.suite == kKldSuite
             ? "<h2>Arms</h2>\n<p>KL(dense || arm) in nats over every compared token.</p>\n"
             : "<h2>Arms</h2>\n<p>KL(dense || arm) in nats over the first tokens of dense's own answers.</p>\n";
  out += arm_table(summary);
  out += strata_table(summary);
  if (!summary.tasks.empty()) {
    out += "<h2>Tasks</h2>\n<p>Rows in grey: dense scores below 50 %, so that the cell cannot rank arms.</p>\n" +
           task_table(summary);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace varve::eval
