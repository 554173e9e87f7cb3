#include <algorithm>
#include <map>

#include "base/median.h"
#include "base/system.h"
#include "eval/cpu/cpu_bench.h"
#include "eval/cpu/instruction_bound.h"

namespace varve::eval {
namespace {

constexpr const char* kOurFormats[] = {"k4v3.post", "k4v3.rotary", "k3v3.post", "int8.post", "fp8.post", "f16"};
struct PeerFormat {
  const char* type;
  bool flash;
  const char* name;
};
constexpr PeerFormat kPeerFormats[] = {{"f16", false, "ggml f16, flash attention off"},
                                       {"f16", true, "ggml f16, flash attention on"},
                                       {"q8_0", true, "ggml q8_0, flash attention on"},
                                       {"q4_0", true, "ggml q4_0, flash attention on"}};

struct Measured {
  double seconds = 0;
  double kernel_error = 0;  ///< against fp64 over what the cache holds
  double total_error = 0;   ///< and over what was put in
  double bytes = 0, bandwidth = 0;
};

class AttentionRows {
 public:
  AttentionRows(Runner& runner, const kernels::Kernels& kernels, const CpuBenchOptions& options)
      : runner_(runner), kernels_(kernels), options_(options) {}

  void add_clock() {
    if (!clock_) return;
    rows.push_back({.suite = "machine",
                    .name = "clock, from additions that wait for one another",
                    .unit = "GHz",
                    .ours = *clock_ / 1e9});
  }

  Status add(const AttentionShape& shape, bool resident) {
    const AttentionData data = random_attention(shape);
    exact_ = exact_attention(data, data.k, data.v);
    const size_t bytes = resident ? 0 : options_.rotate_bytes;
    std::map<std::string, Measured> ours, peers;
    for (const char* format : kOurFormats) {
      if (Status s =
              measure(format, our_attention(runner_, data, format, kernels_, bytes), data, resident, &ours[format]);
          !s.ok()) {
        return s;
      }
    }
    for (const PeerFormat& p : kPeerFormats) {
      if (Status s =
              measure(p.name, peer_attention(runner_, data, p.type, p.flash, bytes), data, resident, &peers[p.name]);
          !s.ok()) {
        return s;
      }
    }
    const std::string at = shape.name() + (resident ? ", one cache" : "");
    const auto against = [&](const std::string& format, std::initializer_list<int> which, double target) {
      const Measured& m = ours[format];
      BenchRow row{.suite = resident ? "attention, cache resident" : "attention",
                   .name = at + " " + format + " against",
                   .unit = "ms",
                   .higher_is_better = false,
                   .ours = m.seconds * 1e3};
      double best = 0;
      for (const int i : which) {
        const PeerFormat& p = kPeerFormats[i];
        const double ms = row.peers[p.name] = peers[p.name].seconds * 1e3;
        best = best == 0 ? ms : std::min(best, ms);
        row.details[std::string(p.name) + ": error"] = peers[p.name].kernel_error;
        row.details[std::string(p.name) + ": error with its format's"] = peers[p.name].total_error;
      }
      row.name += std::string(" ") + (which.size() == 1 ? "q8_0" : *which.begin() == 0 ? "f16" : "q8_0 and q4_0");
      row.ratio = best / row.ours;
      if (target > 0 && !resident && options_.targets) row.target = target;
      row.details["error"] = m.kernel_error;
      row.details["error with the format's"] = m.total_error;
      rows.push_back(std::move(row));
    };
    against("k4v3.post", {0, 1}, 4);
    against("k4v3.rotary", {0, 1}, 4);
    against("k3v3.post", {0, 1}, 0);
    against("f16", {0, 1}, 0);
    against("k4v3.post", {2, 3}, 10);
    against("fp8.post", {2}, 6);
    against("int8.post", {2}, 6);
    for (const char* format : kOurFormats) {
      const Measured& m = ours[format];
      rows.push_back({.suite = "attention error",
                      .name = at + " " + format + " kernel against fp64",
                      .unit = "of the output",
                      .higher_is_better = false,
                      .ours = m.kernel_error,
                      .peers = {{"bound", 1e-3}},
                      .ratio = 1e-3 / m.kernel_error,
                      .target = 1.0});
      BenchRow read{.suite = resident ? "attention bytes, cache resident" : "attention bytes",
                    .name = at + " " + format,
                    .unit = "GB/s",
                    .ours = m.bytes / m.seconds / 1e9,
                    .peers = {{"streaming read of the same bytes", m.bandwidth / 1e9}}};
      double bound = m.bandwidth;
      const std::string name(format);
      const auto instructions = instruction_bound(kernels_.name, name.substr(0, name.find('.')), shape, m.bytes,
                                                  clock_.value_or(0), runner_.threads());
      if (clock_ && instructions) {
        read.peers["instruction bound"] = *instructions / 1e9;
        bound = std::min(bound, *instructions);
      }
      read.ratio = m.bytes / m.seconds / bound;
      if (!resident && options_.targets && std::string(format).starts_with("k4v3")) read.target = 0.75;
      rows.push_back(std::move(read));
    }
    return {};
  }

  std::vector<BenchRow> rows;

 private:
  Status measure(const char* name, Result<std::unique_ptr<AttentionContender>> made, const AttentionData& data,
                 bool resident, Measured* out) {
    if (!made.ok()) return made.status();
    AttentionContender& contender = **made;
    const int passes = resident ? 16 : 1;
    std::vector<double> seconds;
    for (int round = -1; round < options_.rounds; ++round) {
      const auto took = contender.run(passes);
      if (!took.ok()) return took.status();
      if (round >= 0) seconds.push_back(*took);
    }
    out->seconds = median(seconds);
    out->bytes = static_cast<double>(contender.layer_bytes());
    std::vector<float> k, v;
    contender.stored(&k, &v);
    out->kernel_error = relative_error(contender.output(), exact_attention(data, k, v));
    out->total_error = relative_error(contender.output(), exact_);
    const auto bandwidth = runner_.read_bandwidth(contender.regions(), options_.rounds);
    if (!bandwidth.ok()) return bandwidth.status();
    out->bandwidth = *bandwidth;
    const int total = static_cast<int>(std::size(kOurFormats) + std::size(kPeerFormats));
    done_ = done_ % total + 1;
    if (options_.progress &&
        !options_.progress("attention " + data.shape.name() + (resident ? ", one cache" : ""), done_, total)) {
      return {StatusCode::kCancelled, std::string("stopped at ") + name};
    }
    return {};
  }

  Runner& runner_;
  const kernels::Kernels& kernels_;
  const CpuBenchOptions& options_;
  const std::optional<double> clock_ = measured_clock();
  std::vector<double> exact_;
  int done_ = 0;
};

}  // namespace

Result<std::vector<BenchRow>> measure_attention(const CpuBenchOptions& options) {
  const auto kernels = kernels::choose(options.kernel);
  if (!kernels.ok()) return kernels.status();
  auto runner = Runner::create(options.threads > 0 ? options.threads : processor_count());
  if (!runner.ok()) return runner.status();
  AttentionRows rows(**runner, **kernels, options);
  if (!options.shapes.empty()) rows.add_clock();
  for (const bool resident : {false, true}) {
    for (const AttentionShape& shape : options.shapes) {
      if (Status s = rows.add(shape, resident); !s.ok()) return s;
    }
  }
  return std::move(rows.rows);
}

}  // namespace varve::eval
