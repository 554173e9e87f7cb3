#include "cli/bench_report.h"

#include <cmath>
#include <cstdio>

#include "base/build_info.h"

namespace varve::cli {
namespace {

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), std::abs(x) < 0.01 && x != 0 ? "%.2e" : "%.2f", x);
  return text;
}

nlohmann::ordered_json finite(double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nullptr; }

}  // namespace

nlohmann::ordered_json bench_json(const std::vector<eval::BenchRow>& rows) {
  const MachineInfo& machine = machine_info();
  const BuildInfo& build = build_info();
  nlohmann::ordered_json out = {
      {"machine", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"features", machine.features}}},
      {"build",
       {{"version", build.version},
        {"build_type", build.build_type},
        {"compiler", build.compiler},
        {"ggml_isa", build.ggml_isa},
        {"llama_cpp", build.llama_cpp}}},
      {"rows", nlohmann::ordered_json::array()}};
  for (const eval::BenchRow& r : rows) {
    nlohmann::ordered_json peers = nlohmann::ordered_json::object();
    for (const auto& [name, value] : r.peers) peers[name] = finite(value);
    nlohmann::ordered_json details = nlohmann::ordered_json::object();
    for (const auto& [name, value] : r.details) details[name] = finite(value);
    out["rows"].push_back({{"suite", r.suite},
                           {"case", r.name},
                           {"unit", r.unit},
                           {"better", r.higher_is_better ? "higher" : "lower"},
                           {"ours", finite(r.ours)},
                           {"peers", std::move(peers)},
                           {"ratio", finite(r.ratio)},
                           {"target", r.target ? nlohmann::ordered_json(*r.target) : nullptr},
                           {"met", r.met()},
                           {"details", std::move(details)}});
  }
  return out;
}

void print_bench(std::ostream& out, const std::vector<eval::BenchRow>& rows) {
  for (const eval::BenchRow& r : rows) {
    out << r.suite << ": " << r.name << ": " << number(r.ours) << " " << r.unit;
    for (const auto& [name, value] : r.peers) out << "; " << name << " " << number(value);
    if (r.ratio != 0) out << "; ratio " << number(r.ratio);
    if (r.target) out << " (target " << number(*r.target) << ", " << (r.met() ? "met" : "NOT met") << ")";
    for (const auto& [name, value] : r.details) out << "; " << name << " " << number(value);
    out << "\n";
  }
}

}  // namespace varve::cli
