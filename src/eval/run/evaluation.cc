#include "eval/run/evaluation.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/clock.h"
#include "base/sha256.h"
#include "eval/kl.h"
#include "eval/run/run_slice.h"

namespace varve::eval {
namespace {

constexpr int kWarmUpTokens = 256, kWarmUpSteps = 8;
/// Room of a session beyond prompt and answer: libllama rounds contexts, a look-ahead may pass the answer's budget.
constexpr int kContextSlack = 64;

struct Speed {
  double read_s = 0, step_s = 0;  ///< of one token, of one decode step
};

Result<Speed> measure_speed(const std::shared_ptr<model::Model>& model, const EvalOptions& options) {
  const int tokens = std::min(kWarmUpTokens, model->info().context_train / 2);
  auto arm = make_arm(model, options.arms[0],
                      {.context_tokens = tokens + kWarmUpSteps + 1,
                       .chunk_tokens = options.step_tokens(),
                       .threads = options.threads,
                       .kernel = options.kernel,
                       .weight_gemm = options.weight_products()});
  if (!arm.ok()) return arm.status();
  Tokens text;
  for (int i = 0; i < tokens; ++i) text.push_back(static_cast<int32_t>(1 + i % (model->info().vocabulary - 1)));
  std::vector<float> rows;
  Speed speed;
  for (const int n : {std::min(tokens, 16), tokens}) {  // the first time pages the weights in
    const double started = now_s();
    if (Status s = (*arm)->read({}, {}); !s.ok()) return s;
    const std::span<const int32_t> part(text.data(), static_cast<size_t>(n));
    if (Status s = (*arm)->step(part, options.is_kld(), rows); !s.ok()) return s;
    speed.read_s = (now_s() - started) / n;
  }
  if (Status s = (*arm)->ask({text.data(), 1}); !s.ok()) return s;
  const double started = now_s();
  for (int i = 0; i < kWarmUpSteps; ++i) {
    if (Status s = (*arm)->say(text[static_cast<size_t>(i)]); !s.ok()) return s;
  }
  speed.step_s = (now_s() - started) / kWarmUpSteps;
  return speed;
}

/// Profiles that the model or this machine cannot serve are found out now, not in the middle of the night.
Status check_arms(const std::shared_ptr<model::Model>& model, const EvalOptions& options) {
  const std::string& digest = model->info().digest;
  for (const ArmSpec& spec : options.arms) {
    const std::string& of = spec.profile.model_digest;
    if (spec.kind == ArmKind::kOurs && !of.empty() && of != digest) {
      return invalid_argument("arm " + spec.name + " was calibrated for model " + of + "; this model is " + digest);
    }
    const auto arm = make_arm(model, spec,
                              {.context_tokens = kWarmUpTokens,
                               .chunk_tokens = std::min(options.step_tokens(), kWarmUpTokens),
                               .threads = options.threads,
                               .kernel = options.kernel,
                               .weight_gemm = options.weight_products()});
    if (!arm.ok()) return arm.status();
  }
  return {};
}

/// Time of a token read into a context of `context` tokens over that of one in the warm-up: products with the weights
/// stay, attention grows with the mean depth.
double growth(const model::ModelInfo& info, double context) {
  const double weights = 2 * double(info.parameters);
  const auto attention = [&](double depth) {
    double flops = 0;
    for (const model::LayerInfo& l : info.kv_layers) {
      const double seen = l.window > 0 ? std::min(depth, double(l.window)) : depth;
      flops += 4 * seen * l.q_heads * l.head_dim;
    }
    return flops;
  };
  return (weights + attention(context / 2)) / (weights + attention(kWarmUpTokens / 2.0));
}

}  // namespace

Result<nlohmann::ordered_json> run_identity(const model::Model& model, const EvalOptions& options) {
  nlohmann::ordered_json identity = {{"varve_eval", 1},
                                     {"suite", options.suite},
                                     {"model", model.info().name},
                                     {"model_digest", model.info().digest},
                                     {"mode", mode_name(options.mode)},
                                     {"seed", options.seed},
                                     {"weight_gemm", options.weight_products()},
                                     {"chunk_tokens", options.step_tokens()},
                                     {"kernel", options.kernel},
                                     {"texts", nlohmann::ordered_json::array()},
                                     {"data", nullptr}};
  for (const Document& d : options.documents) {
    Sha256 hash;
    hash.update(d.text.data(), d.text.size());
    identity["texts"].push_back({{"name", d.name}, {"sha256", hash.hex()}});
  }
  if (!options.data.empty()) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(options.data, error);
    if (error) return io_error(options.data + ": " + error.message());
    const auto hash = sha256_of_file(options.data, 0, bytes);
    if (!hash.ok()) return hash.status();
    identity["data"] = {{"sha256", *hash}};
  }
  return identity;
}

Result<std::unique_ptr<Evaluation>> Evaluation::prepare(std::shared_ptr<model::Model> model, EvalOptions options,
                                                        const std::string& directory) {
  auto plan = make_plan(*model, options);
  if (!plan.ok()) return plan.status();
  if (Status s = check_arms(model, options); !s.ok()) return s;
  const auto identity = run_identity(*model, options);
  if (!identity.ok()) return identity.status();
  auto store = Store::open(directory, *identity);
  if (!store.ok()) return store.status();
  std::unique_ptr<Evaluation> out(
      new Evaluation(std::move(model), std::move(options), std::move(*plan), std::move(*store)));
  if (Status s = out->find_todo(); !s.ok()) return s;
  return out;
}

Status Evaluation::find_todo() {
  group_todo_.assign(plan_.groups.size(), Todo(options_.arms.size()));
  slice_todo_.assign(plan_.slices.size(), {});
  for (size_t a = 0; a < options_.arms.size(); ++a) {
    const ArmSpec& arm = options_.arms[a];
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      for (size_t q = 0; q < plan_.groups[g].questions.size(); ++q) {
        const ItemPrompt& question = plan_.groups[g].questions[q];
        const auto done = store_.has(question.item.id, arm, question.prompt_sha256);
        if (!done.ok()) return done.status();
        if (!*done) group_todo_[g][a].push_back(q);
      }
    }
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      const auto done = store_.has(plan_.slices[s].id, arm, plan_.slices[s].sha256);
      if (!done.ok()) return done.status();
      if (!*done) slice_todo_[s].push_back(a);
    }
  }
  return {};
}

int64_t Evaluation::left() const {
  int64_t pairs = static_cast<int64_t>(plan_.slices.size() * options_.arms.size());
  for (const Group& g : plan_.groups) pairs += static_cast<int64_t>(g.questions.size() * options_.arms.size());
  const auto counts = [this](const std::string& id) {
    return std::ranges::count_if(options_.arms, [&](const ArmSpec& a) { return store_.has_any(id, a.name); });
  };
  for (const Slice& s : plan_.slices) pairs -= counts(s.id);
  for (const Group& g : plan_.groups) {
    for (const ItemPrompt& q : g.questions) pairs -= counts(q.item.id);
  }
  return pairs;
}

Remaining Evaluation::remaining() const {
  Remaining out;
  double weighted = 0;
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const Group& group = plan_.groups[g];
    for (const auto& list : group_todo_[g]) {
      out.pairs += static_cast<int64_t>(list.size());
      out.done_pairs += static_cast<int64_t>(group.questions.size() - list.size());
    }
    const GroupWork work = group_work(options_, group, group_todo_[g]);
    out.read_tokens += work.read_tokens;
    out.small_step_tokens += work.small_step_tokens;
    out.generated_tokens += work.generated_tokens;
    weighted += double(work.read_tokens + work.small_step_tokens) * double(group.shared.size());
  }
  for (size_t s = 0; s < plan_.slices.size(); ++s) {
    const auto& list = slice_todo_[s];
    out.pairs += static_cast<int64_t>(list.size());
    out.done_pairs += static_cast<int64_t>(options_.arms.size() - list.size());
    if (list.empty()) continue;
    const int64_t each = static_cast<int64_t>(plan_.slices[s].tokens.size()) - 1;
    const int64_t tokens = slice_tokens(options_, plan_.slices[s], list);
    const auto small = std::ranges::count_if(list, [&](size_t a) { return options_.arms[a].chunk_tokens > 0; });
    out.small_step_tokens += small * each;
    out.read_tokens += tokens - small * each;
    weighted += double(tokens) * double(each);
  }
  const int64_t read = out.read_tokens + out.small_step_tokens;
  out.mean_context = read > 0 ? weighted / double(read) : 0;
  return out;
}

Result<double> Evaluation::estimate_s() const {
  const Remaining rest = remaining();
  if (rest.pairs == 0) return 0.0;
  const auto speed = measure_speed(model_, options_);
  if (!speed.ok()) return speed.status();
  const double deep = growth(model_->info(), rest.mean_context);
  const double deepest = growth(model_->info(), 2 * rest.mean_context);
  return deep *
             (double(rest.read_tokens) * speed->read_s + double(rest.small_step_tokens) / kFloorChunk * speed->step_s) +
         deepest * double(rest.generated_tokens) * speed->step_s;
}

Status Evaluation::run(const EvalProgress& progress) {
  Team team(model_, options_, store_);
  team.report_to(progress, remaining().tokens());
  std::map<int, int> longest;  // by length: whole benchmark prompts may say little about theirs
  for (const Group& g : plan_.groups) longest[g.length] = std::max({longest[g.length], g.length, g.tokens});
  for (const Slice& s : plan_.slices) longest[s.length] = s.length;
  int length = 0;
  const auto enter = [&](int next) {
    if (next != length) {
      team.start_length(std::min(longest[next] + kContextSlack, model_->info().context_train));
    }
    length = next;
  };
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (std::ranges::all_of(group_todo_[g], [](const auto& list) { return list.empty(); })) continue;
    enter(plan_.groups[g].length);
    if (Status s = run_group(team, plan_.groups[g], group_todo_[g]); !s.ok()) return s;
  }
  for (size_t i = 0; i < plan_.slices.size(); ++i) {
    if (slice_todo_[i].empty()) continue;
    enter(plan_.slices[i].length);
    if (Status s = run_slice(team, plan_.slices[i], slice_todo_[i]); !s.ok()) return s;
  }
  return find_todo();
}

}  // namespace varve::eval
