#include "cli/lifecycle_report.h"

#include <ostream>

#include "cli/terminal.h"
#include "cli/text_format.h"

namespace varve::cli {
namespace {

nlohmann::ordered_json summary_json(const eval::DivergenceSummary& s) {
  return {{"n", s.n}, {"kld_mean", s.mean}, {"kld_median", s.median}, {"kld_p99", s.p99}, {"same_top1", s.same_top}};
}

double ratio(size_t dense, size_t physical) { return physical != 0 ? double(dense) / double(physical) : 0.0; }

}  // namespace

void print_lifecycle(std::ostream& out, const eval::LifecycleReport& r) {
  out << format_text("scores: a decode step at %d tokens takes %.2f ms without and %.2f ms with them: %+.1f %%\n",
                     r.tokens, r.scoring.off_ms, r.scoring.on_ms, 100 * r.scoring.overhead());
  const eval::ConversionCost& c = r.conversion;
  out << format_text(
      "conversion: %.0f tokens/s; decode step %.2f ms, worst %.2f ms, of which conversion at most %.2f ms "
      "(%.2f steps); scratch %s\n",
      c.tokens_per_s, c.decode_step_ms, c.worst_step_ms, c.worst_conversion_ms,
      c.decode_step_ms > 0 ? c.worst_conversion_ms / c.decode_step_ms : 0.0, format_bytes(c.scratch_bytes).c_str());
  out << format_text("%8s %12s %8s %8s %8s %8s\n", "tokens", "bytes", "ratio", "recent", "anchor", "stale");
  for (const auto& p : c.over_time) {
    out << format_text("%8d %12s %7.2fx %8lld %8lld %8lld\n", p.tokens, format_bytes(p.physical_bytes).c_str(),
                       ratio(p.dense_bytes, p.physical_bytes), static_cast<long long>(p.recent_pages),
                       static_cast<long long>(p.anchor_pages), static_cast<long long>(p.stale_pages));
  }
  out << format_text("prefix hit: %d tokens cached; %.3f s to the first token cold, %.3f s hit (%.3fx)\n",
                     r.prefix.cached_tokens, r.prefix.cold_s, r.prefix.hit_s,
                     r.prefix.cold_s > 0 ? r.prefix.hit_s / r.prefix.cold_s : 0.0);
  out << format_text("ways to one prefix, mean KL over %lld tokens of a question (cold against dense: %.5f)\n",
                     static_cast<long long>(r.cold_dense.n), r.cold_dense.mean);
  out << format_text("%-24s %16s %16s %10s\n", "", "against cold", "against dense", "same top");
  for (const eval::PathDivergence& p : r.paths) {
    out << format_text("%-24s %16.6f %16.6f %9.1f%%\n", p.path.c_str(), p.cold.mean, p.dense.mean,
                       100 * p.cold.same_top);
  }
  out << format_text("attention returns to the page at %d: mean KL against dense\n", r.shift_page_start);
  out << format_text("%-12s %12s %10s %10s %10s %10s %12s %12s %9s\n", "arm", "promoted at", "before", "after",
                     "p99 after", "promoted", "bytes", "kept aside", "ms/token");
  for (const eval::ShiftArm& a : r.shift) {
    out << format_text("%-12s %12s %10.5f %10.5f %10.5f %10llu %12s %12s %9.2f\n", a.name.c_str(),
                       a.promoted_at < 0 ? "never" : ("token " + std::to_string(a.promoted_at)).c_str(), a.before.mean,
                       a.after.mean, a.after.p99, static_cast<unsigned long long>(a.promotions),
                       format_bytes(a.physical_bytes).c_str(), format_bytes(a.refinement_bytes).c_str(), a.step_ms);
  }
}

nlohmann::ordered_json lifecycle_json(const eval::LifecycleReport& r) {
  const eval::ConversionCost& c = r.conversion;
  nlohmann::ordered_json over_time = nlohmann::ordered_json::array(), paths = over_time, shift = over_time;
  for (const auto& p : c.over_time) {
    over_time.push_back({{"tokens", p.tokens},
                         {"physical_bytes", p.physical_bytes},
                         {"dense_bytes", p.dense_bytes},
                         {"ratio", ratio(p.dense_bytes, p.physical_bytes)},
                         {"recent_pages", p.recent_pages},
                         {"anchor_pages", p.anchor_pages},
                         {"stale_pages", p.stale_pages}});
  }
  for (const eval::PathDivergence& p : r.paths) {
    paths.push_back(
        {{"path", p.path}, {"against_cold", summary_json(p.cold)}, {"against_dense", summary_json(p.dense)}});
  }
  for (const eval::ShiftArm& a : r.shift) {
    shift.push_back(
        {{"arm", a.name},
         {"promoted_at", a.promoted_at < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(a.promoted_at)},
         {"before", summary_json(a.before)},
         {"after", summary_json(a.after)},
         {"promotions", a.promotions},
         {"recomputed_tokens", a.recomputed_tokens},
         {"physical_bytes", a.physical_bytes},
         {"refinement_bytes", a.refinement_bytes},
         {"ms_per_token", a.step_ms},
         {"kl", a.kl}});
  }
  return {
      {"tokens", r.tokens},
      {"scoring", {{"off_ms", r.scoring.off_ms}, {"on_ms", r.scoring.on_ms}, {"overhead", r.scoring.overhead()}}},
      {"conversion",
       {{"tokens_per_s", c.tokens_per_s},
        {"decode_step_ms", c.decode_step_ms},
        {"worst_step_ms", c.worst_step_ms},
        {"worst_conversion_ms", c.worst_conversion_ms},
        {"scratch_bytes", c.scratch_bytes},
        {"over_time", std::move(over_time)}}},
      {"prefix", {{"cached_tokens", r.prefix.cached_tokens}, {"cold_s", r.prefix.cold_s}, {"hit_s", r.prefix.hit_s}}},
      {"paths", {{"cold_against_dense", summary_json(r.cold_dense)}, {"ways", std::move(paths)}}},
      {"shift", {{"page_start", r.shift_page_start}, {"arms", std::move(shift)}}}};
}

}  // namespace varve::cli
