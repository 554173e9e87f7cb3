#include "cli/calibrate_report.h"

#include "cli/terminal.h"
#include "cli/text_format.h"

namespace varve::cli {
namespace {

void print_side(std::ostream& out, const std::vector<eval::CodecCost>& costs) {
  for (const eval::CodecCost& c : costs) {
    if (c.codec != "8") out << format_text(" %9.2e%s", c.kl, c.measured() ? " " : "~");
  }
}

void print_layers(std::ostream& out, const eval::Calibration& c) {
  out << "What one layer alone costs, KL in nats a token (~: this codec was not measured), and what was chosen:\n  "
         "layer centre ";
  for (const std::string& k : eval::kCalibratedK) {
    if (k != "8") out << format_text(" %9s ", ("k" + k).c_str());
  }
  for (const std::string& v : eval::kCalibratedV) {
    if (v != "8") out << format_text(" %9s ", ("v" + v).c_str());
  }
  out << "  format\n";
  const int count = static_cast<int>(c.layers.size());
  for (int l = 0; l < count; ++l) {
    const eval::LayerCosts& costs = c.layers[static_cast<size_t>(l)];
    out << format_text("  %5d %-7s", costs.layer, costs.centre.c_str());
    print_side(out, costs.k);
    print_side(out, costs.v);
    out << "  " << c.profile.layer_formats(l, count).stale1 << (costs.one_format ? ", recent pages too\n" : "\n");
  }
}

void print_summary(std::ostream& out, const std::string& name, const eval::DivergenceSummary& s) {
  out << format_text("  %-34s %10.6f %9.4f %9.2f%% %9.4f\n", name.c_str(), s.mean, s.p99, 100 * s.same_top,
                     s.ppl_ratio);
}

void print_check(std::ostream& out, const char* title, const eval::TextCheck& check,
                 const std::vector<uint64_t>& seeds) {
  out << format_text("%s: %d tokens, %d compared, each session reading over its own pages\n", title, check.tokens,
                     check.compared);
  out << format_text("  %-34s %10s %9s %10s %9s\n", "profile", "mean KL", "p99", "same top", "PPL x");
  for (const auto& [name, summaries] : {std::pair{"minima", &check.minima}, std::pair{"calibrated", &check.calibrated},
                                        std::pair{"refused", &check.refused}}) {
    for (size_t i = 0; i < summaries->size(); ++i) {
      print_summary(out, name + (", rotation seed " + std::to_string(seeds[i])), (*summaries)[i]);
    }
  }
}

}  // namespace

void print_calibration(std::ostream& out, const eval::Calibration& c, const eval::CalibrateOptions& options) {
  print_layers(out, c);
  out << "\nPage shapes, each with its best formats (sum of the layers' costs, and measured as a whole):\n";
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    const eval::ShapeResult& s = c.shapes[i];
    out << format_text("  page %4d, recent %4d: ", s.shape.page_tokens, s.shape.recent_tokens);
    if (s.uniform) out << "uniform formats, ";
    if (s.reachable) {
      out << format_text("predicted %.6f, measured %.6f, same top %.2f%%, %.2fx%s\n", s.predicted_kl, s.measured_kl,
                         100 * s.same_top, s.ratio, i == c.chosen ? "  <- chosen" : "");
    } else {
      out << "the budget cannot be met\n";
    }
  }
  out << format_text("  minima, measured the same way: %.6f, %.2fx\n", c.minima_kl, c.minima_ratio);
  if (!c.held_out.refused.empty()) {
    out << "The choice by layer is worse than the same formats in every layer on the held-out text: it is refused, and "
           "the profile has the same formats in every layer.\n";
  } else if (c.shapes[c.chosen].uniform) {
    out << "No choice by layer measured better on the passages: the profile has the same formats in every layer.\n";
  }
  out << "\n";
  print_check(out, "Held-out text", c.held_out, options.check_seeds);
  out << format_text(
      "\nAt %d tokens: %s of f16 become %s, %.2fx smaller, everything counted (reachable: %.2fx to %.2fx)\n",
      options.length_tokens, format_bytes(c.dense_bytes).c_str(), format_bytes(c.physical_bytes).c_str(),
      double(c.dense_bytes) / double(c.physical_bytes), c.least_ratio, c.most_ratio);
}

}  // namespace varve::cli
