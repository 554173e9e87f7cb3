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
/// Between these two ratios of squared errors, KL decides between centres.
constexpr double kCentreDoubt = 1.5;
/// How much lower its KL must be for the centre that is dearer to read.
constexpr double kRotaryGain = 0.9;
/// A few times is enough: KL grows with its prediction, though not in proportion.
constexpr int kMaxKlRounds = 6;

std::string text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.4g", x);
  return buffer;
}

Status check_options(const CalibrateOptions& o, size_t text_tokens, size_t held_out_tokens) {
  if (o.eval_tokens < kUseStep || o.eval_tokens % kUseStep != 0) {
    return invalid_argument("calibration compares " + std::to_string(o.eval_tokens) +
                            " tokens; it must be a multiple of " + std::to_string(kUseStep));
  }
  if (o.shapes.empty() || o.measured_k.empty() || o.measured_v.empty() || o.check_seeds.empty()) {
    return invalid_argument("calibration needs a page shape, a codec to measure on each side, and a seed");
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
  const size_t needed = static_cast<size_t>(std::max(o.prefill_tokens + o.eval_tokens, o.check_tokens));
  if (text_tokens < needed) {
    return invalid_argument("the calibration text has " + std::to_string(text_tokens) + " tokens; " +
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

  Result<Calibration> run(std::span<const int32_t> text, std::span<const int32_t> held_out);

 private:
  Status measure_layers();
  Result<std::string> choose_centre(int ordinal, const LocalErrors& errors, LayerCosts& out);
  Status measure_side(int ordinal, bool is_k, LayerCosts& out);
  Result<ArmDivergence> measure_layer(int ordinal, const std::string& k, const std::string& v,
                                      const std::string& centre);
  /// Whether any formats meet the byte budget, before the minutes that measuring takes.
  Status check_reachable();
  Status out_of_reach() const;
  Status solve_for_bytes();
  Status solve_for_kl(std::span<const int32_t> text);
  Result<std::vector<DivergenceSummary>> check(std::span<const int32_t> text, std::vector<Profile> arms);
  Status check_texts(std::span<const int32_t> text, std::span<const int32_t> held_out);
  Profile in_shape(const PageShape& shape) const;

  std::shared_ptr<model::Model> model_;
  const model::ModelInfo& info_;
  const CalibrateOptions& options_;
  TokenMeter meter_;
  std::optional<Arms> arms_;
  Calibration out_;
};

Profile Calibrator::in_shape(const PageShape& shape) const {
  Profile p = options_.base;
  p.page_tokens = shape.page_tokens;
  p.recent_tokens = shape.recent_tokens;
  return p;
}

Result<ArmDivergence> Calibrator::measure_layer(int ordinal, const std::string& k, const std::string& v,
                                                const std::string& centre) {
  const Profile arm = single_layer_profile(options_.base, options_.shapes.front(), ordinal, "k" + k + "v" + v, centre);
  return arms_->measure("layer " + std::to_string(ordinal + 1) + " of " + std::to_string(info_.kv_layers.size()), arm,
                        options_.eval_tokens);
}

Result<std::string> Calibrator::choose_centre(int ordinal, const LocalErrors& errors, LayerCosts& out) {
  const std::string& codec = options_.measured_k.back();
  for (const auto& [centre, by_codec] : errors.k) out.centre_error[centre] = by_codec.at(codec);
  const std::string best = best_centre(errors, codec);
  const double post = out.centre_error["post"], rotary = out.centre_error["rotary"];
  if (best == "none" || std::max(post, rotary) > kCentreDoubt * std::min(post, rotary)) return best;
  for (const char* centre : {"post", "rotary"}) {
    const auto arm = measure_layer(ordinal, codec, "8", centre);
    if (!arm.ok()) return arm.status();
    out.centre_kl[centre] = arm->kl;
  }
  return std::string(out.centre_kl["rotary"] < kRotaryGain * out.centre_kl["post"] ? "rotary" : "post");
}

Status Calibrator::measure_side(int ordinal, bool is_k, LayerCosts& out) {
  for (const std::string& codec : is_k ? options_.measured_k : options_.measured_v) {
    std::vector<CodecCost>& costs = is_k ? out.k : out.v;
    const auto cost = std::find_if(costs.begin(), costs.end(), [&](const CodecCost& c) { return c.codec == codec; });
    const auto arm = measure_layer(ordinal, is_k ? codec : "8", is_k ? "8" : codec, out.centre);
    if (!arm.ok()) return arm.status();
    cost->kl = arm->kl;
    cost->same_top = arm->same_top;
    cost->measured = true;
  }
  complete_costs(is_k ? out.k : out.v);
  return {};
}

Status Calibrator::measure_layers() {
  const auto plan = engine::plan_cache(info_, in_shape(options_.shapes.front()));
  if (!plan.ok()) return plan.status();
  LocalErrorOptions local{.page_tokens = options_.shapes.front().page_tokens,
                          .first_position = options_.base.sink_tokens,
                          .end_position = options_.prefill_tokens,
                          .k_codecs = kCalibratedK,
                          .v_codecs = kCalibratedV,
                          .encode = {.inner_product_norm = options_.base.inner_product_norm}};
  for (size_t ordinal = 0; ordinal < info_.kv_layers.size(); ++ordinal) {
    const int layer = info_.kv_layers[ordinal].layer;
    const engine::ClassPlan& cls = plan->classes[static_cast<size_t>(plan->class_of_layer[static_cast<size_t>(layer)])];
    const auto geometry = std::find_if(cls.layers.begin(), cls.layers.end(),
                                       [&](const format::LayerGeometry& g) { return g.layer == layer; });
    const auto errors = measure_local_errors(arms_->dense(), arms_->session(), *geometry, local);
    if (!errors.ok()) return errors.status();
    LayerCosts costs{.layer = layer, .centre = {}, .centre_error = {}, .centre_kl = {}, .k = {}, .v = {}};
    const auto centre = choose_centre(static_cast<int>(ordinal), *errors, costs);
    if (!centre.ok()) return centre.status();
    costs.centre = *centre;
    for (const std::string& codec : kCalibratedK) {
      costs.k.push_back({.codec = codec, .error = errors->k.at(*centre).at(codec)});
    }
    for (const std::string& codec : kCalibratedV) costs.v.push_back({.codec = codec, .error = errors->v.at(codec)});
    if (Status s = measure_side(static_cast<int>(ordinal), true, costs); !s.ok()) return s;
    if (Status s = measure_side(static_cast<int>(ordinal), false, costs); !s.ok()) return s;
    out_.layers.push_back(std::move(costs));
  }
  return {};
}

Status Calibrator::out_of_reach() const {
  return invalid_argument("a budget of " + text(options_.budget_ratio) + "x at " +
                          std::to_string(options_.length_tokens) + " tokens: the formats reach from " +
                          text(out_.least_ratio) + "x to " + text(out_.most_ratio) + "x");
}

Status Calibrator::check_reachable() {
  const Price price(info_, options_.length_tokens, out_.scratch_bytes);
  for (const PageShape& shape : options_.shapes) {
    Profile p = in_shape(shape);
    p.layers.clear();
    p.formats.centre = "none";  // saves the centres' bytes
    for (const auto& [format, ratio] : {std::pair{"k2v2", &out_.most_ratio}, std::pair{"int8", &out_.least_ratio}}) {
      p.formats.stale1 = format;
      const auto bytes = price.physical_bytes(p);
      if (!bytes.ok()) return bytes.status();
      const double reached = double(out_.dense_bytes) / double(*bytes);
      const bool most = ratio == &out_.most_ratio;
      if (*ratio == 0 || (most ? reached > *ratio : reached < *ratio)) *ratio = reached;
    }
  }
  return options_.budget_ratio > out_.most_ratio ? out_of_reach() : Status();
}

Status Calibrator::solve_for_bytes() {
  const Price price(info_, options_.length_tokens, out_.scratch_bytes);
  const auto budget = static_cast<size_t>(double(out_.dense_bytes) / options_.budget_ratio);
  double best = 0;
  std::optional<Solver::Solution> chosen;
  for (const PageShape& shape : options_.shapes) {
    const auto solver = Solver::create(options_.base, shape, out_.layers, price);
    if (!solver.ok()) return solver.status();
    ShapeResult result{.shape = shape};
    if (const auto solution = solver->within_bytes(budget)) {
      const auto arm = arms_->measure("page shapes", solution->profile, kUseStep);
      if (!arm.ok()) return arm.status();
      result.reachable = true;
      result.predicted_kl = solution->cost;
      result.measured_kl = arm->kl;
      result.same_top = arm->same_top;
      result.ratio = double(out_.dense_bytes) / double(solution->physical_bytes);
      if (!chosen || arm->kl < best) {
        best = arm->kl;
        chosen = solution;
        out_.chosen = out_.shapes.size();
      }
    }
    out_.shapes.push_back(result);
  }
  if (!chosen) return out_of_reach();
  out_.profile = chosen->profile;
  out_.physical_bytes = chosen->physical_bytes;
  return {};
}

Status Calibrator::solve_for_kl(std::span<const int32_t> calibration_text) {
  const Price price(info_, options_.length_tokens, out_.scratch_bytes);
  const PageShape& shape = options_.shapes.front();
  const auto solver = Solver::create(options_.base, shape, out_.layers, price);
  if (!solver.ok()) return solver.status();
  // Measured over its own pages a session loses more than the sum of the layers says, so the sum is held lower.
  double target = options_.max_kl, least_measured = 0;
  for (int round = 0; round < kMaxKlRounds; ++round) {
    const auto solution = solver->within_cost(std::max(target, solver->least_cost()));
    if (!solution) break;
    const auto measured = check(calibration_text, {solution->profile});
    if (!measured.ok()) return measured.status();
    const double kl = measured->front().mean;
    least_measured = round == 0 ? kl : std::min(least_measured, kl);
    if (kl <= options_.max_kl) {
      const auto arm = arms_->measure("page shapes", solution->profile, kUseStep);
      if (!arm.ok()) return arm.status();
      out_.profile = solution->profile;
      out_.physical_bytes = solution->physical_bytes;
      out_.shapes.push_back({.shape = shape,
                             .predicted_kl = solution->cost,
                             .measured_kl = arm->kl,
                             .same_top = arm->same_top,
                             .ratio = double(out_.dense_bytes) / double(solution->physical_bytes),
                             .reachable = true});
      return {};
    }
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

Status Calibrator::check_texts(std::span<const int32_t> calibration_text, std::span<const int32_t> held_out) {
  const auto measure = [&](std::span<const int32_t> tokens, size_t seeds, TextCheck& result) -> Status {
    std::vector<Profile> arms = {options_.base};
    for (size_t i = 0; i < seeds; ++i) {
      arms.push_back(out_.profile);
      arms.back().rotation_seed = options_.check_seeds[i];
    }
    auto summaries = check(tokens, std::move(arms));
    if (!summaries.ok()) return summaries.status();
    result.tokens = options_.check_tokens;
    result.compared = static_cast<int>(summaries->front().n);
    result.minima = summaries->front();
    result.calibrated.assign(summaries->begin() + 1, summaries->end());
    return {};
  };
  if (Status s = measure(calibration_text, 1, out_.calibration_text); !s.ok()) return s;
  return measure(held_out, options_.check_seeds.size(), out_.held_out);
}

Result<Calibration> Calibrator::run(std::span<const int32_t> calibration_text, std::span<const int32_t> held_out) {
  const double start = now_s();
  const auto layers = static_cast<int64_t>(info_.kv_layers.size());
  const auto arms = static_cast<int64_t>(options_.measured_k.size() + options_.measured_v.size()) * layers +
                    static_cast<int64_t>(options_.shapes.size()) + 1;
  meter_.expect(options_.prefill_tokens + (arms + 1) * options_.eval_tokens +
                (5 + static_cast<int64_t>(options_.check_seeds.size())) * options_.check_tokens);
  auto made = Arms::create(model_, calibration_text, options_, meter_);
  if (!made.ok()) return made.status();
  arms_.emplace(std::move(*made));
  out_.model_digest = info_.digest;
  const auto scratch = arms_->scratch_bytes(in_shape(options_.shapes.front()));
  if (!scratch.ok()) return scratch.status();
  out_.scratch_bytes = *scratch;
  out_.dense_bytes = Price(info_, options_.length_tokens, 0).dense_bytes();
  if (Status s = check_reachable(); !s.ok()) return s;
  if (Status s = measure_layers(); !s.ok()) return s;
  const auto base = arms_->measure("page shapes", options_.base, kUseStep);
  if (!base.ok()) return base.status();
  out_.minima_kl = base->kl;
  if (Status s = options_.budget_ratio > 0 ? solve_for_bytes() : solve_for_kl(calibration_text); !s.ok()) return s;
  if (Status s = check_texts(calibration_text, held_out); !s.ok()) return s;
  out_.seconds = now_s() - start;
  return out_;
}

}  // namespace

Result<Calibration> calibrate(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                              std::span<const int32_t> held_out, const CalibrateOptions& options) {
  if (Status s = check_options(options, text.size(), held_out.size()); !s.ok()) return s;
  return Calibrator(model, options).run(text, held_out);
}

}  // namespace varve::eval
