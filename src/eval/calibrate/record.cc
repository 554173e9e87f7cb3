#include "eval/calibrate/record.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;

/// Four digits are all that a measurement is worth.
double rounded(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.4g", x);
  return std::strtod(buffer, nullptr);
}

std::vector<double> rounded(std::vector<double> values) {
  for (double& x : values) x = rounded(x);
  return values;
}

Json side_json(const std::vector<CodecCost>& costs) {
  Json out = Json::object();
  for (const CodecCost& c : costs) {
    out[c.codec] = {{"kl", rounded(c.kl)}, {"error", rounded(c.error)}};
    if (!c.measured()) continue;
    out[c.codec]["kl_by_passage"] = rounded(c.kl_by_passage);
    out[c.codec]["same_top1"] = rounded(c.same_top);
  }
  return out;
}

Json layers_json(const std::vector<LayerCosts>& layers) {
  Json out = Json::array();
  for (const LayerCosts& l : layers) {
    Json entry = {{"layer", l.layer},
                  {"centre", l.centre},
                  {"one_format", l.one_format},
                  {"k_sensitivity", rounded(l.k_sensitivity)},
                  {"v_sensitivity", rounded(l.v_sensitivity)}};
    entry["k"] = side_json(l.k);
    entry["v"] = side_json(l.v);
    out.push_back(std::move(entry));
  }
  return out;
}

Json summary_json(const DivergenceSummary& s) {
  return {{"kld_mean", rounded(s.mean)},
          {"kld_p99", rounded(s.p99)},
          {"same_top1", rounded(s.same_top)},
          {"ppl_ratio", rounded(s.ppl_ratio)}};
}

Json check_json(const TextCheck& check, const TextIdentity& text, const std::vector<uint64_t>& seeds) {
  const auto by_seed = [&](const std::vector<DivergenceSummary>& summaries) {
    Json out = Json::array();
    for (size_t i = 0; i < summaries.size(); ++i) {
      Json entry = {{"rotation_seed", seeds[i]}};
      entry.update(summary_json(summaries[i]));
      out.push_back(std::move(entry));
    }
    return out;
  };
  return {{"text", text.name},
          {"sha256", text.sha256},
          {"offset", text.offset},
          {"tokens", check.tokens},
          {"compared", check.compared},
          {"minima", by_seed(check.minima)},
          {"calibrated", by_seed(check.calibrated)},
          {"refused", by_seed(check.refused)}};
}

Json shapes_json(const Calibration& c) {
  Json out = Json::array();
  for (const ShapeResult& s : c.shapes) {
    Json entry = {
        {"page_tokens", s.shape.page_tokens}, {"recent_tokens", s.shape.recent_tokens}, {"uniform", s.uniform}};
    if (s.reachable) {
      entry["predicted_kl"] = rounded(s.predicted_kl);
      entry["measured_kl"] = rounded(s.measured_kl);
      entry["kl_by_passage"] = rounded(s.kl_by_passage);
      entry["same_top1"] = rounded(s.same_top);
      entry["ratio"] = rounded(s.ratio);
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

Result<Profile> recorded_profile(const Calibration& c, const CalibrateOptions& options, const std::string& model_name,
                                 const std::vector<TextIdentity>& passages, const TextIdentity& held_out) {
  Json target = {{"length_tokens", options.length_tokens}};
  if (options.budget_ratio > 0) target["ratio"] = options.budget_ratio;
  if (options.max_kl > 0) target["max_kl"] = options.max_kl;
  const double ratio = double(c.dense_bytes) / double(c.physical_bytes);
  const ShapeResult& chosen = c.shapes[c.chosen];
  Json read = Json::array();
  for (const TextIdentity& p : passages) read.push_back({{"text", p.name}, {"sha256", p.sha256}, {"offset", p.offset}});
  const Json record = {{"version", 3},
                       {"model", {{"digest", c.model_digest}, {"name", model_name}}},
                       {"target", std::move(target)},
                       {"bytes",
                        {{"dense", c.dense_bytes},
                         {"physical", c.physical_bytes},
                         {"scratch", c.scratch_bytes},
                         {"ratio", rounded(ratio)},
                         {"least_ratio", rounded(c.least_ratio)},
                         {"most_ratio", rounded(c.most_ratio)}}},
                       {"passages", std::move(read)},
                       {"prefill_tokens", options.prefill_tokens},
                       {"eval_tokens", options.eval_tokens},
                       {"prior_passages", options.prior_passages},
                       {"predicted_kl", rounded(chosen.predicted_kl)},
                       {"measured_kl", rounded(chosen.measured_kl)},
                       {"minima_kl", rounded(c.minima_kl)},
                       {"minima_by_passage", rounded(c.minima_by_passage)},
                       {"minima_ratio", rounded(c.minima_ratio)},
                       {"held_out", check_json(c.held_out, held_out, options.check_seeds)},
                       {"shapes", shapes_json(c)},
                       {"chosen_shape", c.chosen},
                       {"layers", layers_json(c.layers)}};
  Profile out = c.profile;
  char description[160];
  std::snprintf(description, sizeof(description), "%.2fx smaller than f16 at %d tokens, %s for ", ratio,
                options.length_tokens,
                chosen.uniform ? "the same formats in every layer" : "formats chosen layer by layer");
  out.name = "auto";
  out.description = description + (model_name.empty() ? c.model_digest.substr(0, 16) : model_name);
  if (Status s = out.set_calibration(record.dump()); !s.ok()) return s;
  return out;
}

}  // namespace varve::eval
