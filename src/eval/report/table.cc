#include "eval/report/table.h"

#include <algorithm>

#include "eval/report/format.h"
#include "eval/run/plan.h"

namespace varve::eval {
namespace {

constexpr const char* kPercentOf = "q4_0";  // the arm whose divergence is the yardstick where it was run

const ArmRow* find_arm(const Summary& summary, const std::string& arm, int length) {
  for (const ArmRow& a : summary.arms) {
    if (a.arm == arm && a.length == length) return &a;
  }
  return nullptr;
}

std::string arm_table(const Summary& summary) {
  const bool kld = summary.suite == kKldSuite;
  std::string out = kld ? "KL(dense || arm) in nats over every compared token\n"
                        : "KL(dense || arm) in nats over the first tokens of dense's own answers\n";
  out += print("%-22s %7s %8s %9s %19s %9s %9s %9s %8s %9s %7s\n", "arm", "length", "n", "mean", "95 %", "p99", "max",
               "same top", "PPL x", "B/token", "ratio");
  for (const ArmRow& a : summary.arms) {
    const std::string interval =
        a.kld_interval ? print_kl(a.kld_interval->lo) + " to " + print_kl(a.kld_interval->hi) : std::string("-");
    out += print("%-22s %7s %8lld %9s %19s %9s %9s %8.2f%% %8.4f %9.0f %6.2fx\n", a.arm.c_str(),
                 print_length(a.length).c_str(), static_cast<long long>(a.n), print_kl(a.kld_mean).c_str(),
                 interval.c_str(), print_kl(a.kld_p99).c_str(), print_kl(a.kld_max).c_str(), 100 * a.same_top1,
                 a.ppl_ratio, a.bytes_per_token, a.ratio);
    if (a.peer_kld_mean && *a.peer_kld_mean > 0) {
      out += print("%22s   from llama.cpp's own f16 cache: mean %s, same top %.2f%%\n", "",
                   print_kl(*a.peer_kld_mean).c_str(), 100 * *a.peer_same_top1);
    }
    for (const auto& [reason, count] : a.fallbacks) {
      out += print("%22s   fallback %s: %llu\n", "", reason.c_str(), static_cast<unsigned long long>(count));
    }
  }
  for (const ArmRow& a : summary.arms) {
    if (a.arm == "floor" || a.arm == kPeerReferenceArm) continue;  // they are about rounding, not about bytes
    const ArmRow* yardstick = find_arm(summary, kPercentOf, a.length);
    if (yardstick == nullptr || yardstick->kld_mean <= 0 || a.kld_mean <= 0 || &a == yardstick) continue;
    out += print("%s at %s: %.3fx the KL of %s at %.2fx its bytes\n", a.arm.c_str(), print_length(a.length).c_str(),
                 a.kld_mean / yardstick->kld_mean, kPercentOf, a.bytes_per_token / yardstick->bytes_per_token);
  }
  return out;
}

std::string strata_table(const Summary& summary) {
  std::string out;
  for (const ArmRow& a : summary.arms) {
    if (a.strata.empty() || a.kld_mean == 0) continue;
    std::string line = a.arm + " at " + print_length(a.length) + ", mean KL:";
    for (const auto& [name, s] : a.strata) {
      line += " " + name + " " + print_kl(s.kl_sum / double(s.n)) + (name == a.strata.rbegin()->first ? "" : ",");
    }
    out += line + "\n";
  }
  return out.empty() ? out : "\nBy place in the text and kind of token\n" + out;
}

std::string task_table(const Summary& summary) {
  std::string out = "\nScores, and what changed against dense (95 % interval of the difference)\n";
  out += print("%-20s %7s %-22s %5s %7s %7s %8s %18s %6s %7s\n", "task", "length", "arm", "n", "dense", "score",
               "delta", "95 %", "+ / -", "p");
  for (const TaskRow& t : summary.tasks) {
    const std::string interval = print("%+.1f to %+.1f pp", 100 * t.interval.lo, 100 * t.interval.hi);
    const std::string flips = print("%lld / %lld", static_cast<long long>(t.wins), static_cast<long long>(t.losses));
    out += print("%-20s %7s %-22s %5lld %6.1f%% %6.1f%% %+7.1f %18s %6s %7.2g%s\n", t.task.c_str(),
                 print_length(t.length).c_str(), t.arm.c_str(), static_cast<long long>(t.n), 100 * t.dense_score,
                 100 * t.score, 100 * t.delta, interval.c_str(), flips.c_str(), t.p,
                 t.discriminative ? "" : "  non-discriminative: dense is below 50 %");
  }
  for (const TaskRow& t : summary.tasks) {
    if (t.shortened == 0 || t.task == "all") continue;
    out += t.task + " at " + print_length(t.length) + ", " + t.arm + ": " + std::to_string(t.shortened) + " of " +
           std::to_string(t.n) + " documents lost their middle to fit the length\n";
  }
  out += "\nWhat n can show\n";
  for (const TaskRow& t : summary.tasks) {
    const bool pooled = std::ranges::none_of(
        summary.tasks, [&](const TaskRow& o) { return o.task == "all" && o.arm == t.arm && o.length == t.length; });
    if (t.task == "all" || pooled) {
      out += t.task + " at " + print_length(t.length) + ", " + t.arm + ": " + t.shows + "\n";
    }
  }
  return out;
}

}  // namespace

std::string summary_table(const Summary& summary) {
  std::string out = summary.suite + " on " + summary.model + ", mode " + summary.mode + ", seed " +
                    std::to_string(summary.seed) + "\n";
  out += arm_table(summary);
  out += summary.suite == kKldSuite ? strata_table(summary) : task_table(summary);
  return out;
}

}  // namespace varve::eval
