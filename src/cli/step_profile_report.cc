#include "cli/step_profile_report.h"

#include <cmath>
#include <cstdio>

namespace varve::cli {
namespace {

using Part = double StepTimes::*;
using ThreadPart = double StepTimes::Thread::*;

struct Row {
  const char* key;
  const char* text;
  Part part;
  ThreadPart busy;  ///< null where threads are not told apart
};

constexpr Row kRows[] = {
    {"weights", "weights (matrix products)", &StepTimes::weights_s, nullptr},
    {"append", "attention: append", &StepTimes::append_s, &StepTimes::Thread::append_s},
    {"partial", "attention: partial", &StepTimes::partial_s, &StepTimes::Thread::partial_s},
    {"merge", "attention: merge, seal", &StepTimes::merge_s, &StepTimes::Thread::merge_s},
    {"other_nodes", "other graph nodes", &StepTimes::other_s, nullptr},
    {"start", "waking threads, joining", &StepTimes::start_s, nullptr},
    {"conversion", "conversion", &StepTimes::convert_s, &StepTimes::Thread::convert_s},
    {"scores", "scores", &StepTimes::scores_s, nullptr},
    {"reserve", "reserve", &StepTimes::reserve_s, nullptr},
    {"plan", "plan", &StepTimes::plan_s, nullptr},
    {"prepare", "graph lookup, inputs", &StepTimes::prepare_s, nullptr},
    {"output", "logits out", &StepTimes::output_s, nullptr},
    {"settle", "settle", &StepTimes::settle_s, nullptr},
};

double waited_s(const StepTimes& times, const StepTimes::Thread& thread) {
  return times.attention_s() + times.convert_s - thread.busy_s();
}

nlohmann::ordered_json phase_json(const eval::PhaseProfile& p) {
  const StepTimes& t = p.times;
  const double steps = static_cast<double>(t.steps);
  nlohmann::ordered_json out = {{"steps", t.steps}, {"step_s", (t.wall_s + p.sample_s) / steps}};
  nlohmann::ordered_json& parts = out["parts_s"];
  for (const Row& r : kRows) parts[r.key] = t.*r.part / steps;
  parts["sampling"] = p.sample_s / steps;
  parts["unaccounted"] = p.unaccounted_s() / steps;
  out["threads"] = nlohmann::ordered_json::array();
  for (const StepTimes::Thread& thread : t.threads) {
    nlohmann::ordered_json entry;
    for (const Row& r : kRows) {
      if (r.busy != nullptr) entry[std::string(r.key) + "_s"] = thread.*r.busy / steps;
    }
    entry["waited_s"] = waited_s(t, thread) / steps;
    out["threads"].push_back(std::move(entry));
  }
  out["plain_step_s"] = p.plain_step_s;
  out["probed_step_s"] = p.probed_step_s;
  return out;
}

void print_phase(std::ostream& out, const std::string& title, const eval::PhaseProfile& p) {
  const StepTimes& t = p.times;
  const double steps = static_cast<double>(t.steps), total = t.wall_s + p.sample_s;
  char line[160];
  out << title << "\n";
  std::snprintf(line, sizeof(line), "  %-28s %9s %7s", "", "us", "share");
  out << line;
  for (size_t i = 0; i < t.threads.size() && i < 4; ++i) {
    std::snprintf(line, sizeof(line), " %12s", ("busy " + std::to_string(i)).c_str());
    out << line;
  }
  out << "\n";
  const auto row = [&](const char* text, double seconds) {
    std::snprintf(line, sizeof(line), "  %-28s %9.1f %6.2f%%", text, seconds / steps * 1e6, 100 * seconds / total);
    out << line;
  };
  const auto columns = [&](auto seconds) {
    for (size_t i = 0; i < t.threads.size() && i < 4; ++i) {
      std::snprintf(line, sizeof(line), " %12.1f", seconds(t.threads[i]) / steps * 1e6);
      out << line;
    }
  };
  for (const Row& r : kRows) {
    row(r.text, t.*r.part);
    if (r.busy != nullptr) columns([&](const StepTimes::Thread& thread) { return thread.*r.busy; });
    out << "\n";
  }
  row("sampling", p.sample_s);
  out << "\n";
  row("unaccounted", p.unaccounted_s());
  out << "\n";
  row("sum: the step", total);
  out << "\n";
  std::snprintf(line, sizeof(line), "  %-28s %9s %7s", "waiting in these four", "", "");
  out << line;
  columns([&](const StepTimes::Thread& thread) { return waited_s(t, thread); });
  std::snprintf(line, sizeof(line), "\n  median step without probes %.1f us, with them %.1f us (%+.1f%%)\n",
                p.plain_step_s * 1e6, p.probed_step_s * 1e6, 100 * p.probe_cost());
  out << line;
}

}  // namespace

nlohmann::ordered_json step_profile_json(const eval::StepProfileReport& report) {
  return {
      {"kernel", report.kernel},      {"threads", report.threads},           {"depth", report.depth_tokens},
      {"chunk", report.chunk_tokens}, {"decode", phase_json(report.decode)}, {"prefill", phase_json(report.prefill)}};
}

void print_step_profile(std::ostream& out, const eval::StepProfileReport& report) {
  out << "kernels " << report.kernel << ", " << report.threads << " threads; times are means of a step\n";
  print_phase(out, "decode step at depth " + std::to_string(report.depth_tokens), report.decode);
  print_phase(out,
              "prefill chunk of " + std::to_string(report.chunk_tokens) + " tokens, the last before depth " +
                  std::to_string(report.depth_tokens),
              report.prefill);
}

}  // namespace varve::cli
