#pragma once
// The flags of speculative decoding, shared by run, chat and bench, and the drafter that they name.

#include <memory>
#include <string>

#include "cli/model_options.h"
#include "engine/generate.h"

namespace CLI {
class App;
}

namespace varve::cli {

struct SpeculationOptions {
  std::string mode = "off";  ///< "off", "lookup", "draft"
  std::string draft_model;
  int draft_tokens = engine::Speculation().draft_tokens;
  double row_cost = engine::Speculation().row_cost;
  int least_ngram = 2, most_ngram = 4;
};

/// --speculate, --draft-model, --draft-tokens, --draft-row-cost, --ngram-min, --ngram-max.
void add_speculation_options(CLI::App& app, SpeculationOptions& options);

/// Options that contradict each other, before any model is loaded.
Status check_speculation_options(const SpeculationOptions& options);

/// What engine::generate takes, and the drafter that it points to.
struct OpenSpeculation {
  std::unique_ptr<engine::Drafter> drafter;  ///< null: off
  engine::Speculation speculation;
};

/// Loads the draft model if one is asked for. It runs over a dense cache, as many threads and tokens of a step as the
/// model's engine, and a context that is the lesser of both models'. It belongs to one conversation or one document
/// after the other; it follows any change of tokens.
Result<OpenSpeculation> open_speculation(const SpeculationOptions& options, const ModelOptions& model_options,
                                         const Engine& engine, const model::SamplerOptions& sampling);

}  // namespace varve::cli
