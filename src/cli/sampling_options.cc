#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>

namespace varve::cli {

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  model::SamplerOptions& s = options.sampler;
  app.add_option("-n,--predict", options.max_tokens, "most tokens of an answer")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--temp", s.temperature, "temperature; 0 takes the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", s.top_k, "only the k most likely tokens; 0 is off")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--top-p", s.top_p, "only the most likely tokens that add up to p; 1 is off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", s.min_p, "only tokens at least p times as likely as the first; 0 is off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repeat-penalty", s.repeat_penalty, "penalty of the last 64 tokens; 1 is off")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "of the sampler; the same seed gives the same answer")->capture_default_str();
}

}  // namespace varve::cli
