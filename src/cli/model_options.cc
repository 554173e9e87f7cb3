#include "cli/model_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/auto_profile.h"
#include "cli/interrupt.h"
#include "cli/paths.h"
#include "cli/terminal.h"

namespace varve::cli {
namespace {

/// Digits of a codec for a llama.cpp KV type name, e.g. q4_0 -> 4.
Result<std::string> codec_of_cache_type(const std::string& type, const char* flag) {
  static const std::pair<const char*, const char*> kTypes[] = {
      {"f16", "f16"}, {"q8_0", "8"}, {"q5_0", "5"}, {"q5_1", "5"}, {"q4_0", "4"}, {"q4_1", "4"}, {"fp8", "fp8"},
      {"int8", "8"},  {"8", "8"},    {"6", "6"},    {"5", "5"},    {"4", "4"},    {"3", "3"},    {"2", "2"}};
  std::string list;
  for (const auto& [name, codec] : kTypes) {
    if (type == name) return std::string(codec);
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return invalid_argument(std::string(flag) + " " + type + " is not a cache type (known: " + list + ")");
}

nlohmann::ordered_json transition_json(const Transition& t) {
  return {{"step", t.step},         {"session", t.session}, {"page", t.page},   {"page_start", t.page_start},
          {"window", t.window},     {"from", t.from},       {"to", t.to},       {"why", t.why},
          {"how", t.how},           {"outcome", t.outcome}, {"score", t.score}, {"from_bytes", t.from_bytes},
          {"to_bytes", t.to_bytes}, {"us", t.microseconds}};
}

/// The first line of a trace: what `varve inspect --trace` must know to draw it.
nlohmann::ordered_json trace_header(const model::ModelInfo& model, const Profile& profile) {
  nlohmann::ordered_json tiers = nlohmann::ordered_json::object();
  const std::pair<const char*, const std::string&> formats[] = {{"recent", profile.formats.recent},
                                                                {"anchor", profile.formats.anchor},
                                                                {"stale1", profile.formats.stale1},
                                                                {"stale2", profile.formats.stale2}};
  for (const auto& [tier, format] : formats) {
    if (!format.empty()) tiers[tier] = format;
  }
  return {{"varve_trace", 1},
          {"model", model.name},
          {"profile", profile.name},
          {"page_tokens", profile.page_tokens},
          {"recent_tokens", profile.recent_tokens},
          {"tiers", std::move(tiers)}};
}

}  // namespace

Status TraceFile::open(const std::string& path, const std::string& header) {
  path_ = path;
  errno = 0;
  file_.open(path, std::ios::trunc);
  if (!file_) return io_error(path + ": " + std::strerror(errno));
  line(header);
  return status_;
}

void TraceFile::line(const std::string& text) {
  if (!status_.ok()) return;
  errno = 0;
  file_ << text << "\n" << std::flush;
  if (!file_) status_ = io_error(path_ + ": " + (errno != 0 ? std::strerror(errno) : "writing failed"));
}

void add_model_option(CLI::App& app, ModelOptions& options) {
  options.model_dir = default_model_dir().string();
  app.add_option("-m,--model", options.model, "a GGUF file, or a key of `varve pull --list`")
      ->type_name("MODEL")
      ->required();
  app.add_option("--model-dir", options.model_dir, "where keys are looked up")->type_name("DIR")->capture_default_str();
}

void add_engine_options(CLI::App& app, ModelOptions& options) {
  app.add_option(
         "--profile", options.profile,
         "dense, fp8, int8, minima; auto: what was calibrated for the model; a format for every page such as k4v3; "
         "or a JSON file")
      ->type_name("PROFILE")
      ->capture_default_str();
  app.add_option("--cache-type-k", options.cache_type_k,
                 "(also -ctk) every key in this width: f16, q8_0, q5_0, q4_0, or 8, 6, 5, 4, 3, 2 bits");
  app.add_option("--cache-type-v", options.cache_type_v,
                 "(also -ctv) every value in this width: f16, q8_0, q4_0, or 8, 4, 3, 2 bits");
  app.add_option("--scoring", options.scoring,
                 "on or off instead of the profile's: measure which old pages are attended to")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
         "--restore", options.restore,
         "instead of the profile's: where a promoted page gets its fidelity from, disk, host, recompute or none")
      ->check(CLI::IsMember({"disk", "host", "recompute", "none"}));
  app.add_option("--restore-dir", options.restore_dir,
                 "of the nameless file of --restore disk, made when scoring is on")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("-c,--ctx-size", options.context_tokens, "most tokens of one session [what the model was trained on]")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("-t,--threads", options.threads, "threads [all processors]")->check(CLI::Range(1, 512));
  app.add_option("--chunk", options.chunk_tokens, "most tokens of one prefill step")
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  app.add_option("--kv-budget", options.kv_budget, "most memory of pages, e.g. 512M or 8G [3/4 of what is free]");
  app.add_option("--prefix-cache", options.prefix_cache,
                 "most memory of pages that stay, inside that, for later sessions with the same beginning; 0 for none")
      ->capture_default_str();
  app.add_option("--kernel", options.kernel, "force a kernel table (`varve bench support` lists them)");
  app.add_option("--weight-gemm", options.weight_gemm,
                 "weight products of long prompts: auto, or ggml for what llama.cpp computes (parity and kl always do)")
      ->capture_default_str();
  app.add_option("--trace", options.trace, "write every page's move between tiers to this file, one JSON object a line")
      ->type_name("FILE");
  app.add_option("--n-gpu-layers", options.gpu_layers, "(also -ngl) layers on a GPU: this build runs on the CPU, so 0")
      ->capture_default_str();
}

Result<std::shared_ptr<model::Model>> open_model(const ModelOptions& options, bool repack) {
  const auto path = resolve_model(options.model, options.model_dir);
  if (!path.ok()) return path.status();
  Progress progress("loading", 100, Unit::kItems);
  model::LoadOptions load;
  load.repack = repack;
  load.progress = [&](float fraction) {
    progress.update(static_cast<uint64_t>(fraction * 100));
    return !interrupted();
  };
  return model::Model::load(*path, load);
}

Result<Profile> choose_profile(const ModelOptions& options) {
  if (options.cache_type_k.empty() && options.cache_type_v.empty()) {
    auto profile = load_profile(options.profile, options);
    if (!profile.ok()) return profile.status();
    if (!options.scoring.empty()) profile->scoring.on = options.scoring == "on";
    if (!options.restore.empty()) profile->scoring.restore = options.restore;
    if (Status s = profile->validate(); !s.ok()) return Status(s.code(), options.profile + ": " + s.message());
    return profile;
  }
  if (!options.scoring.empty() || !options.restore.empty()) {
    return invalid_argument("--scoring and --restore need a --profile with an anchor tier, not -ctk and -ctv");
  }
  const auto k = codec_of_cache_type(options.cache_type_k.empty() ? "f16" : options.cache_type_k, "-ctk");
  if (!k.ok()) return k.status();
  const auto v = codec_of_cache_type(options.cache_type_v.empty() ? "f16" : options.cache_type_v, "-ctv");
  if (!v.ok()) return v.status();
  return Profile::uniform(*k == *v && *k == "f16" ? "f16" : "k" + *k + "v" + *v);
}

Result<std::unique_ptr<Engine>> open_engine(const std::shared_ptr<model::Model>& model, const ModelOptions& options,
                                            const Profile& profile, TraceFile& trace) {
  if (options.gpu_layers > 0) {
    return unsupported("-ngl " + std::to_string(options.gpu_layers) + ": this build runs on the CPU only");
  }
  EngineOptions engine;
  engine.profile = profile;
  engine.threads = options.threads;
  engine.context_tokens = options.context_tokens;
  engine.chunk_tokens = options.chunk_tokens;
  engine.kernel = options.kernel;
  engine.weight_gemm = options.weight_gemm;
  engine.refinement_dir = options.restore_dir;
  if (!options.trace.empty()) {
    if (Status s = trace.open(options.trace, trace_header(model->info(), profile).dump()); !s.ok()) return s;
    engine.on_transition = [&trace](const Transition& t) { trace.line(transition_json(t).dump()); };
  }
  if (!options.kv_budget.empty()) {
    const auto bytes = parse_bytes(options.kv_budget);
    if (!bytes.ok()) return Status(bytes.status().code(), "--kv-budget: " + bytes.status().message());
    engine.kv_budget_bytes = *bytes;
  }
  if (options.prefix_cache != "0") {
    const auto bytes = parse_bytes(options.prefix_cache);
    if (!bytes.ok()) return Status(bytes.status().code(), "--prefix-cache: " + bytes.status().message());
    engine.prefix_cache_bytes = *bytes;
  }
  return Engine::create(model, engine);
}

Status check_writable(const std::string& path) {
  if (path.empty()) return {};
  const std::filesystem::path directory = std::filesystem::absolute(path).parent_path();
  errno = std::filesystem::is_directory(path) ? EISDIR : 0;
  if (errno != 0 || access(directory.c_str(), W_OK) != 0) return io_error(path + ": " + std::strerror(errno));
  return {};
}

Result<size_t> parse_bytes(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  if (unit.ends_with("iB")) unit.resize(unit.size() - 2);
  const size_t power = std::string("KMGT").find(unit);
  const bool known = unit.empty() || (unit.size() == 1 && power != std::string::npos);
  const int shift = unit.empty() ? 0 : static_cast<int>(10 * (power + 1));
  if (error != std::errc() || !known || value == 0 || value > (UINT64_MAX >> shift)) {
    return invalid_argument("\"" + text + "\" is not a size (examples: 512M, 8G, 1048576)");
  }
  return static_cast<size_t>(value << shift);
}

Result<int> parse_tokens(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const bool kilo = unit == "K" || unit == "k";
  if (error != std::errc() || value <= 0 || (!unit.empty() && !kilo) || value > (1 << 20)) {
    return invalid_argument("\"" + text + "\" is not a number of tokens (examples: 4096, 8K)");
  }
  return kilo ? value * 1024 : value;
}

}  // namespace varve::cli
