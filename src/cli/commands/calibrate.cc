#include "eval/calibrate/calibrate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <tuple>

#include "base/manifest.h"
#include "base/sha256.h"
#include "cli/auto_profile.h"
#include "cli/calibrate_report.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "eval/calibrate/record.h"
#include "model/text.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

struct CalibrateCommand {
  ModelOptions model;
  std::vector<std::string> texts;
  std::string held_out;
  int passages = 6;
  std::string budget = "3.63x", length = "8K";
  double max_kl = 0;
  std::string out;
  std::vector<std::string> measure;
  int prefill_tokens = 1024, eval_tokens = 64;
  bool json = false;
};

/// "3.63x" or "3.63".
Result<double> parse_ratio(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  if (error != std::errc() || !(value >= 1 && value <= 100) || (!unit.empty() && unit != "x")) {
    return invalid_argument("--budget " + text + " is not a ratio from 1x to 100x (example: 3.63x)");
  }
  return value;
}

/// "k4" and "v3" into the sides' lists, finest first.
Status parse_measure(const std::vector<std::string>& codecs, eval::CalibrateOptions& options) {
  std::vector<std::string> k, v;
  for (const auto& [prefix, known, list] :
       {std::tuple{'k', &eval::kCalibratedK, &k}, std::tuple{'v', &eval::kCalibratedV, &v}}) {
    for (const std::string& codec : *known) {
      if (std::find(codecs.begin(), codecs.end(), prefix + codec) != codecs.end()) list->push_back(codec);
    }
  }
  if (k.size() + v.size() != codecs.size() || k.empty() || v.empty()) {
    return invalid_argument(
        "--measure needs at least one of k8, k6, k5, k4, k3, k2 and one of v8, v4, v3, v2, each once");
  }
  options.measured_k = k;
  options.measured_v = v;
  return {};
}

struct Excerpt {
  std::vector<int32_t> tokens;
  eval::TextIdentity identity;
};

/// `wanted` tokens from the line that begins at or after each of `parts` of the file (0..1). One part that has too few
/// is taken from the start of the file.
Result<std::vector<Excerpt>> read_excerpts(const model::Model& model, const std::string& path,
                                           const std::vector<double>& parts, size_t wanted) {
  const auto text = read_text(path);
  if (!text.ok()) return text.status();
  Sha256 hash;
  hash.update(text->data(), text->size());
  const std::string name = fs::path(path).filename().string(), sha256 = hash.hex();
  const auto read = [&](size_t offset) -> Result<Excerpt> {
    // No tokenizer here gives more tokens than bytes; 16 bytes a token keeps a book from being tokenized for a page.
    std::string part = text->substr(offset, wanted * 16);
    while (!part.empty() && (static_cast<unsigned char>(part.back()) & 0xc0) == 0x80) part.pop_back();
    if (!part.empty() && static_cast<unsigned char>(part.back()) >= 0xc0) part.pop_back();
    auto tokens = model::tokenize(model, part, true, false);
    if (!tokens.ok()) return tokens.status();
    if (tokens->size() > wanted) tokens->resize(wanted);
    return Excerpt{.tokens = std::move(*tokens),
                   .identity = {.name = name, .sha256 = sha256, .offset = static_cast<int64_t>(offset)}};
  };
  std::vector<Excerpt> out;
  for (const double at : parts) {
    const size_t line = text->find('\n', size_t(at * double(text->size())));
    auto excerpt = read(line == std::string::npos ? 0 : line + 1);
    if (excerpt.ok() && excerpt->tokens.size() < wanted && parts.size() == 1) excerpt = read(0);
    if (!excerpt.ok()) return excerpt.status();
    if (excerpt->tokens.size() < wanted) {
      return invalid_argument(path + " has " + std::to_string(excerpt->tokens.size()) + " tokens from byte " +
                              std::to_string(excerpt->identity.offset) + " on; " + std::to_string(wanted) +
                              " are needed (--tokens and --eval-tokens say how many)");
    }
    out.push_back(std::move(*excerpt));
  }
  return out;
}

/// A text of the manifest, as `varve pull KEY` leaves it; found out before a model is read.
Result<std::string> pulled_text(const char* key, const char* option) {
  const fs::path path = default_text_dir() / manifest().find_text(key)->file;
  std::error_code error;
  if (fs::exists(path, error)) return path.string();
  return not_found(path.string() + " is not there: varve pull " + key + " fetches it, or name a text with " + option);
}

Result<std::string> given_text(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) ? Result<std::string>(path) : not_found(path + ": there is no such file");
}

/// What a profile has to serve: prose, structured prose, code.
constexpr const char* kTexts[] = {"jargon", "debian-policy", "pydecimal"};
constexpr const char* kHeldOut = "gpl-3";

Result<std::vector<std::string>> text_paths(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& path : given) {
    const auto found = given_text(path);
    if (!found.ok()) return found.status();
    out.push_back(*found);
  }
  for (const char* key : kTexts) {
    if (!given.empty()) break;
    const auto found = pulled_text(key, "--text");
    if (!found.ok()) return found.status();
    out.push_back(*found);
  }
  return out;
}

/// The passages, spread over the texts in turn and over each text evenly.
Result<std::vector<Excerpt>> read_passages(const model::Model& model, const std::vector<std::string>& texts,
                                           int passages, size_t wanted) {
  std::vector<Excerpt> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const int own = (passages - int(i) + int(texts.size()) - 1) / int(texts.size());
    std::vector<double> parts;
    for (int p = 0; p < own; ++p) parts.push_back((2 * p + 1) / (2.0 * own));
    auto read = read_excerpts(model, texts[i], parts, wanted);
    if (!read.ok()) return read.status();
    std::move(read->begin(), read->end(), std::back_inserter(out));
  }
  return out;
}

Status write_profile(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  errno = 0;
  std::ofstream file(part, std::ios::trunc);
  file << text << std::flush;
  const std::string why = errno != 0 ? std::strerror(errno) : "writing failed";
  const bool written = bool(file);
  file.close();
  std::error_code error;
  if (written) fs::rename(part, path, error);
  if (written && !error) return {};
  const std::string reason = written ? error.message() : why;
  fs::remove(part, error);
  return io_error(path + ": " + reason);
}

Status run_calibrate(const CalibrateCommand& command) {
  catch_interrupts();
  eval::CalibrateOptions options;
  const auto base = Profile::named("minima");
  if (!base.ok()) return base.status();
  options.base = *base;
  options.prefill_tokens = command.prefill_tokens;
  options.eval_tokens = command.eval_tokens;
  options.threads = command.model.threads;
  options.kernel = command.model.kernel;
  if (Status s = parse_measure(command.measure, options); !s.ok()) return s;
  const auto length = parse_tokens(command.length);
  if (!length.ok()) return Status(length.status().code(), "--length: " + length.status().message());
  options.length_tokens = *length;
  options.max_kl = command.max_kl;
  options.budget_ratio = 0;
  if (command.max_kl == 0) {
    const auto ratio = parse_ratio(command.budget);
    if (!ratio.ok()) return ratio.status();
    options.budget_ratio = *ratio;
  }
  const auto texts = text_paths(command.texts);
  if (!texts.ok()) return texts.status();
  if (size_t(command.passages) < texts->size()) {
    return invalid_argument("--passages " + std::to_string(command.passages) + " is too few for " +
                            std::to_string(texts->size()) + " texts");
  }
  const auto held_out_file =
      command.held_out.empty() ? pulled_text(kHeldOut, "--held-out") : given_text(command.held_out);
  if (!held_out_file.ok()) return held_out_file.status();
  if (Status s = check_writable(command.out); !s.ok()) return s;

  const auto model = open_model(command.model, /*repack=*/false);
  if (!model.ok()) return model.status();
  const model::ModelInfo& info = (*model)->info();
  std::string out = command.out;
  if (out.empty()) {
    out = profile_beside(info.path).string();
    if (!check_writable(out).ok()) out = profile_in(command.model.model_dir, info.digest).string();
    if (Status s = check_writable(out); !s.ok()) return s;
  }
  const auto excerpts =
      read_passages(**model, *texts, command.passages, size_t(options.prefill_tokens + options.eval_tokens));
  if (!excerpts.ok()) return excerpts.status();
  std::vector<std::vector<int32_t>> passages;
  std::vector<eval::TextIdentity> identities;
  for (const Excerpt& e : *excerpts) {
    passages.push_back(e.tokens);
    identities.push_back(e.identity);
  }
  const auto held_out = read_excerpts(**model, *held_out_file, {0.25}, size_t(options.check_tokens));
  if (!held_out.ok()) return held_out.status();

  // One line for all of it: the stages differ little in tokens per second, so the time left is about right.
  std::unique_ptr<Progress> progress;
  options.progress = [&](const std::string&, int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("calibrating", uint64_t(total), Unit::kTokens);
    progress->update(uint64_t(done));
    return !interrupted();
  };
  const auto calibration = eval::calibrate(*model, passages, held_out->front().tokens, options);
  progress.reset();
  if (!calibration.ok()) return calibration.status();
  const auto profile = eval::recorded_profile(*calibration, options, info.name, identities, held_out->front().identity);
  if (!profile.ok()) return profile.status();
  const std::string json = profile->to_json();
  if (Status s = write_profile(out, json); !s.ok()) return s;
  if (command.json) {
    std::cout << json;
    return {};
  }
  print_calibration(std::cout, *calibration, options);
  std::cout << "Wrote " << out << " in " << format_duration(calibration->seconds)
            << "; --profile auto finds it when it lies beside the model or in the model directory.\n";
  return {};
}

}  // namespace

Action define_calibrate(CLI::App& app) {
  const auto command = std::make_shared<CalibrateCommand>();
  add_model_option(app, command->model);
  CLI::Option* budget = app.add_option("--budget", command->budget,
                                       "how many times smaller than f16 a session must be, everything counted")
                            ->type_name("RATIO")
                            ->capture_default_str();
  app.add_option("--max-kl", command->max_kl,
                 "instead of --budget: the most mean KL to the f16 cache, as few bytes as that allows")
      ->check(CLI::PositiveNumber)
      ->excludes(budget);
  app.add_option("--length", command->length, "session length that the bytes are counted for")->capture_default_str();
  app.add_option("--text", command->texts,
                 "what is read to measure, again for each text [the Jargon File, the Debian Policy, Python's decimal]")
      ->type_name("FILE");
  app.add_option("--passages", command->passages, "how many places of the texts are read")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--held-out", command->held_out, "another text, to check the result on [the GNU GPL 3]")
      ->type_name("FILE");
  app.add_option("--tokens", command->prefill_tokens, "tokens of each passage stored before the comparison")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  app.add_option("--eval-tokens", command->eval_tokens, "tokens of each passage compared, a multiple of 64")
      ->check(CLI::Range(64, 512))
      ->capture_default_str();
  command->measure = {"k3", "v3"};
  app.add_option("--measure", command->measure,
                 "codecs that are measured in every layer; all costs are scaled from them")
      ->delimiter(',')
      ->default_str("k3,v3");
  app.add_option("--out", command->out, "the profile to write [beside the model, or in the model directory]")
      ->type_name("FILE");
  app.add_option("-t,--threads", command->model.threads, "threads [all processors]")->check(CLI::Range(1, 512));
  app.add_option("--kernel", command->model.kernel, "force a kernel table (`varve bench support` lists them)");
  app.add_flag("--json", command->json, "print the profile that was written instead of tables");
  app.footer(
      "Examples:\n"
      "  varve calibrate -m qwen2.5-coder-0.5b                 3.63 times smaller at 8K tokens, as close to f16 as can "
      "be\n"
      "  varve calibrate -m model.gguf --budget 3x --length 32K --text notes.txt --held-out other.txt\n"
      "  varve calibrate -m model.gguf --max-kl 0.01           the smallest cache within this distance\n"
      "  varve calibrate -m model.gguf --measure k3,v2         half the time, noisier costs\n"
      "Then: varve run -m MODEL --profile auto. How it measures and solves: docs/calibrate.md.");
  return [command] { return run_calibrate(*command); };
}

}  // namespace varve::cli
