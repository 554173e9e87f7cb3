#include "cli/speculation_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/interrupt.h"
#include "engine/speculation/lookup.h"
#include "engine/speculation/model_drafter.h"

namespace varve::cli {

void add_speculation_options(CLI::App& app, SpeculationOptions& options) {
  app.add_option("--speculate", options.mode,
                 "verify several guessed tokens in one step: lookup continues what stood in the context before, draft "
                 "asks --draft-model; the answer stays what it is (docs/speculation.md)")
      ->check(CLI::IsMember({"off", "lookup", "draft"}))
      ->capture_default_str();
  app.add_option("--draft-model", options.draft_model, "a smaller model of the same vocabulary, for --speculate draft")
      ->type_name("MODEL");
  app.add_option("--draft-tokens", options.draft_tokens, "most guessed tokens of one step")
      ->check(CLI::Range(1, engine::Speculation::kMostDraftTokens))
      ->capture_default_str();
  app.add_option("--draft-row-cost", options.row_cost,
                 "cost of one more token in a step, as a part of the step; guesses that do not pay for it are not "
                 "made; 0 makes all")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--ngram-min", options.least_ngram, "least tokens that lookup must have seen before")
      ->check(CLI::Range(1, engine::PromptLookup::kMostNgram))
      ->capture_default_str();
  app.add_option("--ngram-max", options.most_ngram, "tokens at which lookup takes a match for long enough")
      ->check(CLI::Range(1, engine::PromptLookup::kMostNgram))
      ->capture_default_str();
}

Status check_speculation_options(const SpeculationOptions& options) {
  if (options.mode == "draft" && options.draft_model.empty()) {
    return invalid_argument("--speculate draft needs a --draft-model");
  }
  if (options.mode != "draft" && !options.draft_model.empty()) {
    return invalid_argument("--draft-model " + options.draft_model + " needs --speculate draft, not " + options.mode);
  }
  if (options.least_ngram > options.most_ngram) {
    return invalid_argument("--ngram-min " + std::to_string(options.least_ngram) + " is above --ngram-max " +
                            std::to_string(options.most_ngram));
  }
  return {};
}

namespace {

Result<std::unique_ptr<engine::Drafter>> open_draft_model(const SpeculationOptions& options,
                                                          const ModelOptions& model_options, const Engine& engine,
                                                          const model::SamplerOptions& sampling) {
  ModelOptions draft = model_options;
  draft.model = options.draft_model;
  auto model = open_model(draft);
  if (!model.ok()) return model.status();
  const auto dense = Profile::named("dense");
  if (!dense.ok()) return dense.status();
  EngineOptions engine_options;
  engine_options.profile = *dense;
  engine_options.threads = model_options.threads;
  engine_options.kernel = model_options.kernel;
  engine_options.chunk_tokens = engine.chunk_tokens();
  engine_options.context_tokens = std::min(engine.context_tokens(), (*model)->info().context_train);
  auto made = Engine::create(*model, engine_options);
  if (!made.ok()) return made.status();
  auto drafter =
      engine::ModelDrafter::create(std::move(*made), *engine.model(), sampling, [] { return !interrupted(); });
  if (!drafter.ok()) return drafter.status();
  return std::unique_ptr<engine::Drafter>(std::move(*drafter));
}

}  // namespace

Result<OpenSpeculation> open_speculation(const SpeculationOptions& options, const ModelOptions& model_options,
                                         const Engine& engine, const model::SamplerOptions& sampling) {
  OpenSpeculation out;
  if (options.mode == "lookup") {
    auto lookup = engine::PromptLookup::create({.least_ngram = options.least_ngram, .most_ngram = options.most_ngram});
    if (!lookup.ok()) return lookup.status();
    out.drafter = std::move(*lookup);
  } else if (options.mode == "draft") {
    auto drafter = open_draft_model(options, model_options, engine, sampling);
    if (!drafter.ok()) return Status(drafter.status().code(), "--draft-model: " + drafter.status().message());
    out.drafter = std::move(*drafter);
  }
  out.speculation = {.drafter = out.drafter.get(), .draft_tokens = options.draft_tokens, .row_cost = options.row_cost};
  return out;
}

}  // namespace varve::cli
