#include "cli/run_report.h"

#include "base/system.h"
#include "cli/terminal.h"
#include "cli/text_format.h"

namespace varve::cli {

nlohmann::ordered_json kv_json(const KvStats& kv) {
  nlohmann::ordered_json tiers = nlohmann::ordered_json::array();
  for (const TierStats& t : kv.tiers) {
    tiers.push_back(
        {{"tier", t.tier}, {"format", t.format}, {"pages", t.pages}, {"tokens", t.tokens}, {"bytes", t.bytes}});
  }
  return {{"dense_bytes", kv.dense_bytes},
          {"physical_bytes", kv.physical_bytes},
          {"payload_bytes", kv.payload_bytes},
          {"metadata_bytes", kv.metadata_bytes},
          {"scratch_bytes", kv.scratch_bytes},
          {"cached_bytes", kv.cached_bytes},
          {"ratio", kv.ratio()},
          {"tiers", std::move(tiers)}};
}

nlohmann::ordered_json router_json(const RouterStats& r) {
  return {{"selections", r.selections},
          {"reused", r.reused},
          {"pages_scored", r.pages_scored},
          {"pages_skipped", r.pages_skipped},
          {"decode_tokens", r.decode_tokens},
          {"decode_attended", r.decode_attended},
          {"decode_share", r.decode_share()},
          {"prefill_tokens", r.prefill_tokens},
          {"prefill_attended", r.prefill_attended},
          {"prefill_share", r.prefill_share()},
          {"last_step_share", r.last_step_share}};
}

namespace {

nlohmann::ordered_json low_rank_json(const LowRankStats& s) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::object();
  for (const auto& [rank, blocks] : s.ranks) ranks[std::to_string(rank)] = blocks;
  return {{"blocks", s.blocks},
          {"ranks", std::move(ranks)},
          {"exact_rows", s.exact_rows},
          {"exact_rows_of_runs", s.exact_rows_of_runs},
          {"runs_left_out", s.runs_left_out},
          {"rows_lost", s.rows_lost},
          {"retained_energy", s.mean_retained_energy()},
          {"tokens_per_s", s.tokens_per_s()}};
}

void print_low_rank(std::ostream& out, const LowRankStats& s) {
  if (s.blocks == 0) return;
  out << format_text("low-rank blocks: %llu (one a page and layer), %.4f of the energy kept, ranks",
                     static_cast<unsigned long long>(s.blocks), s.mean_retained_energy());
  for (const auto& [rank, blocks] : s.ranks) {
    out << format_text(" %d:%llu", rank, static_cast<unsigned long long>(blocks));
  }
  out << format_text("; %.1f exact rows a block, %.1f of them in runs, %llu runs left out; %.0f tokens/s a thread and layer\n",
                     s.mean(s.exact_rows), s.mean(s.exact_rows_of_runs),
                     static_cast<unsigned long long>(s.runs_left_out), s.tokens_per_s());
}

nlohmann::ordered_json speculation_json(const engine::SpeculationStats& s) {
  if (s.drafter.empty()) return nullptr;
  return {{"drafter", s.drafter},         {"steps", s.steps},
          {"drafted", s.drafted},         {"accepted", s.accepted},
          {"acceptance", s.acceptance()}, {"without_drafts", s.without},
          {"draft_s", s.draft_s},         {"draft_kv_bytes", s.draft_kv_bytes}};
}

nlohmann::ordered_json contrast_json(const Run& run) {
  if (run.contrast == 0) return nullptr;
  return {{"weight", run.contrast}, {"tokens", run.generation.contrasted}, {"prior_tokens", run.prior_tokens}};
}

}  // namespace

nlohmann::ordered_json run_json(const Run& run) {
  nlohmann::ordered_json fallbacks = nlohmann::ordered_json::object();
  for (const auto& [reason, count] : run.stats.fallbacks) fallbacks[reason] = count;
  return {{"answer", run.answer},
          {"prompt_tokens", run.prompt_tokens},
          {"cached_tokens", run.cached_tokens},
          {"generated_tokens", run.generation.tokens},
          {"stop_reason", engine::stop_reason_name(run.generation.reason)},
          {"ttft_s", run.ttft_s},
          {"decode_tok_s", run.generation.tokens_per_s()},
          {"speculation", speculation_json(run.generation.speculation)},
          {"contrast", contrast_json(run)},
          {"profile", run.profile.name},
          {"kernel", run.stats.kernel},
          {"kv", kv_json(run.stats.kv)},
          {"fallbacks", std::move(fallbacks)},
          {"transitions", run.stats.transitions},
          {"promotions", run.stats.promotions},
          {"recomputed_tokens", run.stats.recomputed_tokens},
          {"scored_steps", run.stats.scored_steps},
          {"tiles_requested", run.stats.tiles_requested},
          {"tiles_read", run.stats.tiles_read},
          {"router", router_json(run.stats.router)},
          {"refinement_bytes", run.stats.refinement_bytes},
          {"low_rank", low_rank_json(run.stats.low_rank)},
          {"conversion_s", run.stats.conversion_s},
          {"worst_token_s", run.generation.worst_step_s},
          {"prefix",
           {{"hits", run.stats.prefix.hits},
            {"misses", run.stats.prefix.misses},
            {"hit_tokens", run.stats.prefix.hit_tokens},
            {"shortened", run.stats.prefix.shortened},
            {"evicted", run.stats.prefix.evicted},
            {"bytes", run.stats.prefix.bytes}}},
          {"peak_rss_bytes", peak_rss_bytes()},
          {"profile_digest", run.profile.digest()}};
}

std::string speculation_line(const engine::SpeculationStats& s) {
  std::string line =
      format_text("speculation (%s): %llu of %llu drafted tokens accepted (%.0f%%), %llu steps", s.drafter.c_str(),
                  static_cast<unsigned long long>(s.accepted), static_cast<unsigned long long>(s.drafted),
                  100 * s.acceptance(), static_cast<unsigned long long>(s.steps));
  const char* separator = ", without drafts: ";
  for (const auto& [reason, count] : s.without) {
    line += format_text("%s%llu %s", separator, static_cast<unsigned long long>(count), reason.c_str());
    separator = ", ";
  }
  if (s.draft_kv_bytes != 0) line += "; the draft model's KV " + format_bytes(s.draft_kv_bytes);
  return line;
}

void print_run(std::ostream& out, const Run& run) {
  const KvStats& kv = run.stats.kv;
  out << format_text("%d prompt tokens (%d cached), %d generated (%s); first token after %.2f s, then %.1f tok/s\n",
                     run.prompt_tokens, run.cached_tokens, run.generation.tokens,
                     engine::stop_reason_name(run.generation.reason), run.ttft_s, run.generation.tokens_per_s());
  if (!run.generation.speculation.drafter.empty()) out << speculation_line(run.generation.speculation) << "\n";
  if (run.contrast != 0) {
    out << format_text("contrast %.2f for %d tokens, against a prompt of %d tokens without the documents\n",
                       run.contrast, run.generation.contrasted, run.prior_tokens);
  }
  out << format_text("%-10s %-8s %8s %10s %12s\n", "tier", "format", "pages", "tokens", "bytes");
  for (const TierStats& t : kv.tiers) {
    out << format_text("%-10s %-8s %8lld %10lld %12s\n", t.tier.c_str(), t.format.c_str(),
                       static_cast<long long>(t.pages), static_cast<long long>(t.tokens),
                       format_bytes(t.bytes).c_str());
  }
  out << format_text("KV cache %s = payload %s + metadata %s + scratch %s; dense f16 %s; %.2fx smaller\n",
                     format_bytes(kv.physical_bytes).c_str(), format_bytes(kv.payload_bytes).c_str(),
                     format_bytes(kv.metadata_bytes).c_str(), format_bytes(kv.scratch_bytes).c_str(),
                     format_bytes(kv.dense_bytes).c_str(), kv.ratio());
  if (kv.cached_bytes != 0)
    out << format_text("of which kept for later prompts %s\n", format_bytes(kv.cached_bytes).c_str());
  if (!run.stats.promotions.empty() || run.stats.refinement_bytes != 0) {
    out << "promoted pages:";
    if (run.stats.promotions.empty()) out << " none";
    for (const auto& [how, count] : run.stats.promotions) out << " " << count << " by " << how;
    out << format_text("; %llu tokens read again, %s kept %s\n",
                       static_cast<unsigned long long>(run.stats.recomputed_tokens),
                       format_bytes(run.stats.refinement_bytes).c_str(),
                       run.stats.refinement_place.empty() ? "aside" : ("on " + run.stats.refinement_place).c_str());
  }
  print_low_rank(out, run.stats.low_rank);
  if (run.profile.router.pages > 0) {
    const RouterStats& r = run.stats.router;
    out << format_text(
        "router: attended to %.1f%% of the context in decode, %.1f%% in prefill; %llu pages skipped, "
        "%llu selections, %llu reused\n",
        100 * r.decode_share(), 100 * r.prefill_share(), static_cast<unsigned long long>(r.pages_skipped),
        static_cast<unsigned long long>(r.selections), static_cast<unsigned long long>(r.reused));
  }
  out << format_text("profile %s, kernel %s, %llu page transitions, fallbacks:", run.profile.name.c_str(),
                     run.stats.kernel.c_str(), static_cast<unsigned long long>(run.stats.transitions));
  if (run.stats.fallbacks.empty()) out << " none";
  for (const auto& [reason, count] : run.stats.fallbacks) out << " " << reason << "=" << count;
  out << "\n";
}

}  // namespace varve::cli
