#include "eval/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <tuple>

#include "base/clock.h"
#include "engine/cache_plan.h"
#include "eval/calibrate/arms.h"
#include "eval/calibrate/assign.h"
#include "eval/calibrate/local_error.h"
#include "eval/kl.h"

namespace varve::eval {
namespace {

/// Steps of arms that are to behave like sessions in use: what they read soon becomes pages. The fewest rows whose
/// weight products are fp32.
constexpr int kUseStep = 64;
/// A window of at most so many recent windows is short: two tiers would share a handful of pages.
constexpr int kShortWindow = 4;
/// A few times is enough: KL grows with its prediction, though not in proportion.
constexpr int kMaxKlRounds = 6;

std::string text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.4g", x);
  return buffer;
}

ArmDivergence mean(const std::vector<ArmDivergence>& passages) {
  ArmDivergence out;
  for (const ArmDivergence& p : passages) {
    out.kl += p.kl / double(passages.size());
    out.same_top += p.same_top / double(passages.size());
  }
  return out;
}

std::vector<double> kl_of(const std::vector<ArmDivergence>& passages) {
  std::vector<double> out;
  for (const ArmDivergence& p : passages) out.push_back(p.kl);
  return out;
}

double mean_kl(const std::vector<DivergenceSummary>& summaries) {
  double sum = 0;
  for (const DivergenceSummary& s : summaries) sum += s.mean;
  return sum / double(summaries.size());
}

Status check_options(const CalibrateOptions& o, std::span<const std::vector<int32_t>> passages,
                     size_t held_out_tokens) {
  if (o.eval_tokens < kUseStep || o.eval_tokens % kUseStep != 0) {
    return invalid_argument("calibration compares " + std::to_string(o.eval_tokens) +
                            " tokens; it must be a multiple of " + std::to_string(kUseStep));
  }
  if (o.shapes.empty() || o.measured_k.empty() || o.measured_v.empty() || o.measure_seeds.empty() ||
      o.check_seeds.empty()) {
    return invalid_argument("calibration needs a page shape, a codec to measure on each side, and seeds");
  }
  for (const auto& [side, measured, known] :
       {std::tuple{"keys", &o.measured_k, &kCalibratedK}, std::tuple{"values", &o.measured_v, &kCalibratedV}}) {
    for (const std::string& codec : *measured) {
      if (std::find(known->begin(), known->end(), codec) != known->end()) continue;
      return invalid_argument("codec " + codec + " cannot be measured for " + side);
    }
  }
  if (o.check_tokens < kUseStep || o.check_tokens % kUseStep != 0) {
    return invalid_argument("calibration checks " + std::to_string(o.check_tokens) +
                            " tokens; it must be a multiple of " + std::to_string(kUseStep));
  }
  const PageShape& shape = o.shapes.front();
  if (const int least = shape.recent_tokens + 2 * shape.page_tokens; o.prefill_tokens < least) {
    return invalid_argument("calibration reads " + std::to_string(o.prefill_tokens) +
                            " tokens before it compares; with pages of " + std::to_string(shape.page_tokens) +
                            " and a recent window of " + std::to_string(shape.recent_tokens) + " it needs " +
                            std::to_string(least));
  }
  if ((o.budget_ratio > 0) == (o.max_kl > 0)) {
    return invalid_argument("calibration needs either a byte budget or a KL budget above 0");
  }
  if (passages.empty()) return invalid_argument("calibration needs a passage to read");
  const size_t needed = static_cast<size_t>(o.prefill_tokens + o.eval_tokens);
  for (const std::vector<int32_t>& p : passages) {
    if (p.size() >= needed) continue;
    return invalid_argument("a calibration passage has " + std::to_string(p.size()) + " tokens; " +
                            std::to_string(needed) + " are needed");
  }
  if (held_out_tokens < static_cast<size_t>(o.check_tokens)) {
    return invalid_argument("the held-out text has " + std::to_string(held_out_tokens) + " tokens; " +
                            std::to_string(o.check_tokens) + " are needed");
  }
  return {};
}

class Calibrator {
 public:
  Calibrator(const std::shared_ptr<model::Model>& model, const CalibrateOptions& options)
      : model_(model), info_(model->info()), options_(options), meter_(options) {}

  Result<Calibration> run(std::span<const std::vector<int32_t>> passages, std::span<const int32_t> held_out);

 private:
  /// Everything about the layers that needs no measurement.
  Status plan_layers();
  Status measure_layers();
  Status measure_side(int ordinal, bool is_k, LayerCosts& out);
  /// A whole profile, measured as the single layers are.
  Result<std::vector<ArmDivergence>> measure_whole(const Profile& profile) {
    return arms_->measure("whole profiles", profile, kUseStep);
  }
  Price price(size_t shape) const { return Price(info_, options_.length_tokens, scratch_[shape]); }
  Assignment coarsest() const { return coarsest_assignment(out_.layers.size()); }
  /// Whether any formats meet the byte budget, before the minutes that measuring takes.
  Status check_reachable();
  Status out_of_reach() const;
  Status solve_for_bytes();
  Status add_candidate(size_t shape, bool uniform, const std::optional<Solver::Solution>& solution);
  /// The base profile if it meets the budget, else the finest uniform formats in any shape that do.
  Status add_uniform(size_t budget);
  void choose(size_t candidate);
  Status solve_for_kl();
  Result<std::vector<DivergenceSummary>> check(std::span<const int32_t> text, std::vector<Profile> arms);
  /// Each profile under every check seed: one list of summaries by profile.
  Result<std::vector<std::vector<DivergenceSummary>>> check_seeds(std::span<const int32_t> text,
                                                                  const std::vector<Profile>& profiles);
  /// The chosen profile on the held-out text; if it loses to the uniform candidate there, that one is taken.
  Status check_held_out(std::span<const int32_t> held_out);
  Profile in_shape(const PageShape& shape) const;

  std::shared_ptr<model::Model> model_;
  const model::ModelInfo& info_;
  const CalibrateOptions& options_;
  TokenMeter meter_;
  std::optional<Arms> arms_;
  std::vector<size_t> scratch_;  ///< bytes by shape, and last of the base profile
  struct Candidate {
    Solver::Solution solution;
    size_t shape = 0;
  };
  std::vector<std::optional<Candidate>> candidates_;  ///< as out_.shapes; nothing where the budget is out of reach
  Calibration out_;
};

Profile Calibrator::in_shape(const PageShape& shape) const {
  Profile p = options_.base;
  p.page_tokens = shape.page_tokens;
  p.recent_tokens = shape.recent_tokens;
  return p;
}

Status Calibrator::measure_side(int ordinal, bool is_k, LayerCosts& out) {
  std::vector<CodecCost>& costs = is_k ? out.k : out.v;
  const std::string what = "layer " + std::to_string(ordinal + 1) + " of " + std::to_string(info_.kv_layers.size());
  for (const std::string& codec : is_k ? options_.measured_k : options_.measured_v) {
    const auto cost = std::find_if(costs.begin(), costs.end(), [&](const CodecCost& c) { return c.codec == codec; });
    const Profile arm = single_layer_profile(options_.base, options_.shapes.front(), ordinal, out,
                                             is_k ? "k" + codec + "v8" : "k8v" + codec);
    // In one step the tokens read are exact to each other, and a short window would see little else.
    const auto measured = arms_->measure(what, arm, out.one_format ? kUseStep : options_.eval_tokens);
    if (!measured.ok()) return measured.status();
    cost->kl_by_passage = kl_of(*measured);
    cost->same_top = mean(*measured).same_top;
  }
  return {};
}

Status Calibrator::plan_layers() {
  const auto plan = engine::plan_cache(info_, in_shape(options_.shapes.front()));
  if (!plan.ok()) return plan.status();
  LocalErrorOptions local{.page_tokens = options_.shapes.front().page_tokens,
                          .first_position = options_.base.sink_tokens,
                          .end_position = options_.prefill_tokens,
                          .centre = {},
                          .k_codecs = kCalibratedK,
                          .v_codecs = kCalibratedV,
                          .encode = {.inner_product_norm = options_.base.inner_product_norm}};
  for (const model::LayerInfo& info : info_.kv_layers) {
    const engine::ClassPlan& cls =
        plan->classes[static_cast<size_t>(plan->class_of_layer[static_cast<size_t>(info.layer)])];
    const auto geometry = std::find_if(cls.layers.begin(), cls.layers.end(),
                                       [&](const format::LayerGeometry& g) { return g.layer == info.layer; });
    // The profile's own rule ("auto": rotary where keys have a bias, else post) decides about centres.
    local.centre =
        cls.slot(cache::Tier::kStale1).layers[static_cast<size_t>(geometry - cls.layers.begin())].format.centre;
    LayerCosts& costs = out_.layers.emplace_back();
    costs.layer = info.layer;
    costs.centre = format::centre_name(local.centre);
    costs.one_format = info.window > 0 && info.window <= kShortWindow * options_.shapes.front().recent_tokens;
    for (const std::string& codec : kCalibratedK) costs.k.push_back({.codec = codec});
    for (const std::string& codec : kCalibratedV) costs.v.push_back({.codec = codec});
    const std::vector<SessionId> sessions = arms_->sessions();
    for (const SessionId session : sessions) {
      const auto errors = measure_local_errors(arms_->dense(), session, *geometry, local);
      if (!errors.ok()) return errors.status();
      for (CodecCost& c : costs.k) c.error += errors->k.at(c.codec) / double(sessions.size());
      for (CodecCost& c : costs.v) c.error += errors->v.at(c.codec) / double(sessions.size());
    }
  }
  return {};
}

Status Calibrator::measure_layers() {
  for (size_t ordinal = 0; ordinal < out_.layers.size(); ++ordinal) {
    for (const bool is_k : {true, false}) {
      if (Status s = measure_side(static_cast<int>(ordinal), is_k, out_.layers[ordinal]); !s.ok()) return s;
    }
  }
  fit_costs(out_.layers, options_.prior_passages);
  return {};
}

Status Calibrator::out_of_reach() const {
  return invalid_argument("a budget of " + text(options_.budget_ratio) + "x at " +
                          std::to_string(options_.length_tokens) + " tokens: the formats reach from " +
                          text(out_.least_ratio) + "x to " + text(out_.most_ratio) + "x");
}

Status Calibrator::check_reachable() {
  const Assignment finest = uniform_assignment(out_.layers.size(), 0, 0);
  for (size_t i = 0; i < options_.shapes.size(); ++i) {
    for (const bool most : {true, false}) {
      const Profile p = assemble(options_.base, options_.shapes[i], out_.layers, most ? coarsest() : finest);
      const auto bytes = price(i).physical_bytes(p);
      if (!bytes.ok()) return bytes.status();
      const double reached = double(out_.dense_bytes) / double(*bytes);
      double& ratio = most ? out_.most_ratio : out_.least_ratio;
      if (ratio == 0 || (most ? reached > ratio : reached < ratio)) ratio = reached;
    }
  }
  return options_.budget_ratio > out_.most_ratio ? out_of_reach() : Status();
}

void Calibrator::choose(size_t candidate) {
  const Candidate& c = *candidates_[candidate];
  out_.chosen = candidate;
  out_.profile = c.solution.profile;
  out_.physical_bytes = c.solution.physical_bytes;
  out_.scratch_bytes = scratch_[c.shape];
}

Status Calibrator::add_candidate(size_t shape, bool uniform, const std::optional<Solver::Solution>& solution) {
  ShapeResult result{.shape = options_.shapes[std::min(shape, options_.shapes.size() - 1)], .uniform = uniform};
  if (solution) {
    result.shape = {.page_tokens = solution->profile.page_tokens, .recent_tokens = solution->profile.recent_tokens};
    const auto arm = measure_whole(solution->profile);
    if (!arm.ok()) return arm.status();
    result.reachable = true;
    result.predicted_kl = solution->cost;
    result.kl_by_passage = kl_of(*arm);
    result.measured_kl = mean(*arm).kl;
    result.same_top = mean(*arm).same_top;
    result.ratio = double(out_.dense_bytes) / double(solution->physical_bytes);
  }
  out_.shapes.push_back(result);
  candidates_.push_back(solution ? std::optional(Candidate{*solution, shape}) : std::nullopt);
  return {};
}

Status Calibrator::add_uniform(size_t budget) {
  const size_t base = options_.shapes.size();
  const auto base_bytes = price(base).physical_bytes(options_.base);
  if (!base_bytes.ok()) return base_bytes.status();
  if (*base_bytes <= budget) {
    return add_candidate(base, true,
                         Solver::Solution{.profile = options_.base, .cost = 0, .physical_bytes = *base_bytes});
  }
  std::optional<Solver::Solution> finest;
  size_t shape = 0;
  double least = 0;
  for (size_t i = 0; i < options_.shapes.size(); ++i) {
    const auto solver = Solver::create(options_.base, options_.shapes[i], out_.layers, price(i));
    if (!solver.ok()) return solver.status();
    const auto found = solver->uniform_within_bytes(budget);
    if (!found || (finest && found->cost >= least)) continue;
    least = found->cost;
    finest = found;
    shape = i;
  }
  return add_candidate(shape, true, finest);
}

Status Calibrator::solve_for_bytes() {
  const auto budget = static_cast<size_t>(double(out_.dense_bytes) / options_.budget_ratio);
  for (size_t i = 0; i < options_.shapes.size(); ++i) {
    const auto solver = Solver::create(options_.base, options_.shapes[i], out_.layers, price(i));
    if (!solver.ok()) return solver.status();
    if (Status s = add_candidate(i, false, solver->within_bytes(budget)); !s.ok()) return s;
  }
  if (Status s = add_uniform(budget); !s.ok()) return s;
  std::optional<size_t> best;
  for (size_t i = 0; i < out_.shapes.size(); ++i) {
    if (!out_.shapes[i].reachable) continue;
    if (!best || out_.shapes[i].measured_kl < out_.shapes[*best].measured_kl) best = i;
  }
  if (!best) return out_of_reach();
  choose(*best);
  return {};
}

Status Calibrator::solve_for_kl() {
  const PageShape& shape = options_.shapes.front();
  const auto solver = Solver::create(options_.base, shape, out_.layers, price(0));
  if (!solver.ok()) return solver.status();
  // Costs add up only about, so where the measured KL is too high the sum is held lower.
  double target = options_.max_kl, least_measured = 0;
  for (int round = 0; round < kMaxKlRounds; ++round) {
    const auto solution = solver->within_cost(std::max(target, solver->least_cost()));
    if (!solution) break;
    if (Status s = add_candidate(0, false, solution); !s.ok()) return s;
    const double kl = out_.shapes.back().measured_kl;
    if (kl <= options_.max_kl) {
      choose(0);
      return {};
    }
    out_.shapes.pop_back();
    candidates_.pop_back();
    least_measured = round == 0 ? kl : std::min(least_measured, kl);
    if (target <= solver->least_cost()) break;
    target = 0.9 * solution->cost * options_.max_kl / kl;
  }
  return invalid_argument("a mean KL of " + text(options_.max_kl) + ": the least that was reached is " +
                          text(least_measured) + ", at " + text(out_.least_ratio) + "x to " + text(out_.most_ratio) +
                          "x smaller than f16");
}

Result<std::vector<DivergenceSummary>> Calibrator::check(std::span<const int32_t> tokens, std::vector<Profile> arms) {
  KlOptions kl;
  kl.arms = std::move(arms);
  kl.floor = false;
  kl.chunk_tokens = 2 * kUseStep;
  kl.skip_tokens = options_.check_tokens / 3;
  kl.threads = options_.threads;
  kl.kernel = options_.kernel;
  kl.weight_gemm = "fp32";
  const auto weight = static_cast<int64_t>(kl.arms.size()) + 1;
  int reported = 0;
  Status stopped;
  kl.progress = [&](int done, int) {
    stopped = meter_.add("checking", (done - reported) * weight);
    reported = done;
    return stopped.ok();
  };
  const auto report = measure_kl(model_, tokens.first(static_cast<size_t>(options_.check_tokens)), kl);
  if (!report.ok()) return report.status();
  std::vector<DivergenceSummary> out;
  for (const KlArm& arm : report->arms) out.push_back(arm.summary);
  return out;
}

Result<std::vector<std::vector<DivergenceSummary>>> Calibrator::check_seeds(std::span<const int32_t> tokens,
                                                                            const std::vector<Profile>& profiles) {
  std::vector<Profile> arms;
  for (const Profile& profile : profiles) {
    for (const uint64_t seed : options_.check_seeds) {
      arms.push_back(profile);
      arms.back().rotation_seed = seed;
    }
  }
  const auto summaries = check(tokens, std::move(arms));
  if (!summaries.ok()) return summaries.status();
  std::vector<std::vector<DivergenceSummary>> out;
  const auto seeds = static_cast<ptrdiff_t>(options_.check_seeds.size());
  for (auto at = summaries->begin(); at != summaries->end(); at += seeds) out.emplace_back(at, at + seeds);
  return out;
}

Status Calibrator::check_held_out(std::span<const int32_t> held_out) {
  const size_t last = out_.shapes.size() - 1;
  const bool guarded = out_.shapes[last].uniform && candidates_[last].has_value();
  std::vector<Profile> profiles = {options_.base};
  // Where each stands; minima may be the uniform candidate, and that the chosen one.
  const auto place = [&](const Profile& profile) {
    for (size_t i = 0; i < profiles.size(); ++i) {
      if (profiles[i].digest() == profile.digest()) return i;
    }
    profiles.push_back(profile);
    return profiles.size() - 1;
  };
  const size_t ours = place(out_.profile);
  const size_t uniform = guarded ? place(candidates_[last]->solution.profile) : ours;
  auto summaries = check_seeds(held_out, profiles);
  if (!summaries.ok()) return summaries.status();
  TextCheck& check = out_.held_out;
  check.tokens = options_.check_tokens;
  check.compared = static_cast<int>(summaries->front().front().n);
  check.minima = summaries->front();
  check.calibrated = (*summaries)[ours];
  if (mean_kl((*summaries)[ours]) > mean_kl((*summaries)[uniform])) {
    check.refused = (*summaries)[ours];
    check.calibrated = (*summaries)[uniform];
    choose(last);
  }
  return {};
}

Result<Calibration> Calibrator::run(std::span<const std::vector<int32_t>> passages, std::span<const int32_t> held_out) {
  const double start = now_s();
  const auto layers = static_cast<int64_t>(info_.kv_layers.size());
  const auto arms = static_cast<int64_t>(options_.measured_k.size() + options_.measured_v.size()) * layers +
                    static_cast<int64_t>(options_.shapes.size()) + 2;
  meter_.expect((options_.prefill_tokens + (arms + 1) * options_.eval_tokens) * static_cast<int64_t>(passages.size()) +
                (1 + 2 * static_cast<int64_t>(options_.check_seeds.size())) * options_.check_tokens);
  auto made = Arms::create(model_, passages, options_, meter_);
  if (!made.ok()) return made.status();
  arms_.emplace(std::move(*made));
  out_.model_digest = info_.digest;
  if (Status s = plan_layers(); !s.ok()) return s;
  for (const PageShape& shape : options_.shapes) {
    const auto scratch = arms_->scratch_bytes(assemble(options_.base, shape, out_.layers, coarsest()));
    if (!scratch.ok()) return scratch.status();
    scratch_.push_back(*scratch);
  }
  const auto base_scratch = arms_->scratch_bytes(options_.base);
  if (!base_scratch.ok()) return base_scratch.status();
  scratch_.push_back(*base_scratch);
  out_.dense_bytes = Price(info_, options_.length_tokens, 0).dense_bytes();
  if (Status s = check_reachable(); !s.ok()) return s;
  if (Status s = measure_layers(); !s.ok()) return s;
  const auto base = measure_whole(options_.base);
  if (!base.ok()) return base.status();
  out_.minima_kl = mean(*base).kl;
  out_.minima_by_passage = kl_of(*base);
  const auto base_bytes = price(options_.shapes.size()).physical_bytes(options_.base);
  if (!base_bytes.ok()) return base_bytes.status();
  out_.minima_ratio = double(out_.dense_bytes) / double(*base_bytes);
  if (Status s = options_.budget_ratio > 0 ? solve_for_bytes() : solve_for_kl(); !s.ok()) return s;
  if (Status s = check_held_out(held_out); !s.ok()) return s;
  out_.seconds = now_s() - start;
  return out_;
}

}  // namespace

Result<Calibration> calibrate(const std::shared_ptr<model::Model>& model,
                              std::span<const std::vector<int32_t>> passages, std::span<const int32_t> held_out,
                              const CalibrateOptions& options) {
  if (Status s = check_options(options, passages, held_out.size()); !s.ok()) return s;
  return Calibrator(model, options).run(passages, held_out);
}

}  // namespace varve::eval
