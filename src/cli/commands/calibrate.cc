#include "eval/calibrate/calibrate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <tuple>

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
  std::string text, held_out;
  std::string budget = "3.63x", length = "8K";
  double max_kl = 0;
  std::string out;
  std::vector<std::string> measure;
  int prefill_tokens = 1536, eval_tokens = 256;
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

/// `wanted` tokens from a quarter of the file on, where title pages and contents are over; from its start when the rest
/// is too short.
Result<Excerpt> read_excerpt(const model::Model& model, const std::string& path, size_t wanted) {
  const auto text = read_text(path);
  if (!text.ok()) return text.status();
  Excerpt out;
  Sha256 hash;
  hash.update(text->data(), text->size());
  out.identity = {.name = fs::path(path).filename().string(), .sha256 = hash.hex(), .offset = 0};
  const size_t quarter = text->find('\n', text->size() / 4);
  for (const size_t offset : {quarter == std::string::npos ? size_t{0} : quarter + 1, size_t{0}}) {
    // No tokenizer here gives more tokens than bytes; 16 bytes a token keeps a book from being tokenized for a page.
    std::string part = text->substr(offset, wanted * 16);
    while (!part.empty() && (static_cast<unsigned char>(part.back()) & 0xc0) == 0x80) part.pop_back();
    if (!part.empty() && static_cast<unsigned char>(part.back()) >= 0xc0) part.pop_back();
    auto tokens = model::tokenize(model, part, true, false);
    if (!tokens.ok()) return tokens.status();
    out.tokens = std::move(*tokens);
    out.identity.offset = static_cast<int64_t>(offset);
    if (out.tokens.size() >= wanted) break;
  }
  if (out.tokens.size() > wanted) out.tokens.resize(wanted);
  if (out.tokens.size() < wanted) {
    return invalid_argument(path + " has " + std::to_string(out.tokens.size()) + " tokens; " + std::to_string(wanted) +
                            " are needed (--tokens and --eval-tokens say how many)");
  }
  return out;
}

/// The file given, else the one that `varve pull KEY` leaves; found out before a model is read.
Result<std::string> text_path(const std::string& given, const char* key, const char* file, const char* option) {
  const fs::path path = given.empty() ? default_text_dir() / file : fs::path(given);
  std::error_code error;
  if (fs::exists(path, error)) return path.string();
  if (!given.empty()) return not_found(given + ": there is no such file");
  return not_found(path.string() + " is not there: varve pull " + key + " fetches it, or name a text with " + option);
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
  options.check_tokens = std::min(command.prefill_tokens, 1536) / 64 * 64;
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
  const auto text_file = text_path(command.text, "jargon", "jargon.txt", "--text");
  if (!text_file.ok()) return text_file.status();
  const auto held_out_file = text_path(command.held_out, "gpl-3", "GPL-3.txt", "--held-out");
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
  const auto text = read_excerpt(**model, *text_file, size_t(options.prefill_tokens + options.eval_tokens));
  if (!text.ok()) return text.status();
  const auto held_out = read_excerpt(**model, *held_out_file, size_t(options.check_tokens));
  if (!held_out.ok()) return held_out.status();

  // One line for all of it: the stages differ little in tokens per second, so the time left is about right.
  std::unique_ptr<Progress> progress;
  options.progress = [&](const std::string&, int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("calibrating", uint64_t(total), Unit::kTokens);
    progress->update(uint64_t(done));
    return !interrupted();
  };
  const auto calibration = eval::calibrate(*model, text->tokens, held_out->tokens, options);
  progress.reset();
  if (!calibration.ok()) return calibration.status();
  const auto profile = eval::recorded_profile(*calibration, options, info.name, text->identity, held_out->identity);
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
  app.add_option("--text", command->text, "what is read to measure [the Jargon File]")->type_name("FILE");
  app.add_option("--held-out", command->held_out, "another text, to check the result on [the GNU GPL 3]")
      ->type_name("FILE");
  app.add_option("--tokens", command->prefill_tokens, "tokens stored before the comparison")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  app.add_option("--eval-tokens", command->eval_tokens, "tokens compared, a multiple of 64")
      ->check(CLI::Range(64, 512))
      ->capture_default_str();
  command->measure = {"k3", "k2", "v3", "v2"};
  app.add_option("--measure", command->measure,
                 "codecs that are measured in every layer; all costs are scaled from them")
      ->delimiter(',')
      ->default_str("k3,k2,v3,v2");
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
