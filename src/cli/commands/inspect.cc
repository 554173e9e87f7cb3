#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/auto_profile.h"
#include "cli/command.h"
#include "cli/inspection.h"
#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/trace/show.h"

namespace varve::cli {
namespace {

struct InspectOptions {
  ModelOptions model;
  std::vector<std::string> profiles;
  std::vector<std::string> lengths = {"8K", "32K", "128K"};
  std::string budget;
  TraceOptions trace;
  bool json = false;
};

/// The named profiles that are always shown, then those asked for that are not among them.
Result<std::vector<Profile>> choose_profiles(const std::vector<std::string>& asked, const ModelOptions& model) {
  std::vector<Profile> out;
  for (const std::string& name : Profile::names()) {
    auto profile = Profile::named(name);
    if (!profile.ok()) return profile.status();
    out.push_back(std::move(*profile));
  }
  for (const std::string& name : asked) {
    auto profile = load_profile(name, model);
    if (!profile.ok()) return profile.status();
    if (profile->name.empty()) profile->name = name;
    const std::string digest = profile->digest();
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Profile& p) { return p.name == profile->name && p.digest() == digest; });
    if (!known) out.push_back(std::move(*profile));
  }
  return out;
}

Status inspect(const InspectOptions& options) {
  if (!options.trace.file.empty()) {
    TraceOptions trace = options.trace;
    trace.json = options.json;
    return show_trace(trace);
  }
  if (options.model.model.empty()) return invalid_argument("-m,--model is required, or --trace FILE");
  const auto profiles = choose_profiles(options.profiles, options.model);
  if (!profiles.ok()) return profiles.status();
  std::vector<int> lengths;
  for (const std::string& length : options.lengths) {
    const auto tokens = parse_tokens(length);
    if (!tokens.ok()) return Status(tokens.status().code(), "--context: " + tokens.status().message());
    lengths.push_back(*tokens);
  }
  size_t budget_bytes = 0;
  if (!options.budget.empty()) {
    const auto bytes = parse_bytes(options.budget);
    if (!bytes.ok()) return Status(bytes.status().code(), "--budget: " + bytes.status().message());
    budget_bytes = *bytes;
  }
  const auto path = resolve_model(options.model.model, options.model.model_dir);
  if (!path.ok()) return path.status();
  auto info = model::Model::describe(*path);
  if (!info.ok()) return info.status();
  const auto inspection = inspect_model(std::move(*info), *profiles, lengths, budget_bytes);
  if (!inspection.ok()) return inspection.status();
  if (options.json) {
    std::cout << inspection_json(*inspection).dump(2) << "\n";
  } else {
    print_inspection(std::cout, *inspection);
  }
  return {};
}

}  // namespace

Action define_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  add_model_option(app, options->model);
  CLI::Option* model = app.get_option("--model")->required(false);  // a trace needs none
  CLI::Option* profile = app.add_option("--profile", options->profiles,
                                        "profiles to price beside the named ones: auto, formats or JSON files")
                             ->type_name("PROFILE");
  CLI::Option* lengths =
      app.add_option("--context", options->lengths, "session lengths in tokens")->delimiter(',')->capture_default_str();
  CLI::Option* budget =
      app.add_option("--budget", options->budget,
                     "memory for weights and sessions, e.g. 8G: says how many sessions fit at each length");
  CLI::Option* trace = app.add_option("--trace", options->trace.file,
                                      "draw what `varve run --trace` or `varve chat --trace` wrote; needs no model")
                           ->type_name("FILE");
  for (CLI::Option* other : {model, profile, lengths, budget}) trace->excludes(other);
  app.add_option("--svg", options->trace.svg, "with --trace: also write the picture to this file")
      ->type_name("FILE")
      ->needs(trace);
  app.add_option("--html", options->trace.html, "with --trace: also write a page with picture and tables to this file")
      ->type_name("FILE")
      ->needs(trace);
  app.add_option("--session", options->trace.session, "with --trace: only this session")
      ->check(CLI::NonNegativeNumber)
      ->needs(trace);
  app.add_flag("--json", options->json, "print one JSON document on stdout (keys: docs/json.md)");
  app.footer(
      "Examples:\n"
      "  varve inspect -m smollm2-135m\n"
      "  varve inspect -m model.gguf --budget 8G --context 16K,64K --profile k5v4\n"
      "  varve inspect --trace lifecycle.jsonl\n"
      "  varve inspect --trace lifecycle.jsonl --session 2 --svg pages.svg --html pages.html\n"
      "Of a model only the file's header is read, never its weights.");
  return [options] { return inspect(*options); };
}

}  // namespace varve::cli
