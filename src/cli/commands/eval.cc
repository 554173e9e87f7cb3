#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/auto_profile.h"
#include "cli/command.h"
#include "cli/eval_texts.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "eval/report/html.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/run/evaluation.h"

namespace varve::cli {
namespace {

constexpr double kLongestWithoutYes = 3600;

struct EvalCommand {
  ModelOptions model;
  eval::EvalOptions eval;
  std::vector<std::string> arms, lengths, texts;
  std::string mode = "B", out, text_dir;
  bool yes = false, json = false;
};

std::string join(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : ",") + s;
  return out;
}

/// The command that makes the same figures, without what does not change them.
std::string command_line(const EvalCommand& c) {
  std::string out = "varve eval -m " + c.model.model + " --suite " + c.eval.suite + " --arms " + join(c.arms) +
                    " --length " + join(c.lengths) + " --n " + std::to_string(c.eval.n) + " --seed " +
                    std::to_string(c.eval.seed) + " --mode " + c.mode;
  if (!c.eval.tasks.empty()) out += " --tasks " + join(c.eval.tasks);
  for (const std::string& text : c.texts) out += " --text " + text;
  if (!c.eval.data.empty()) out += " --data " + c.eval.data;
  if (!c.eval.weight_gemm.empty()) out += " --weight-gemm " + c.eval.weight_gemm;
  if (c.eval.chunk_tokens > 0) out += " --chunk " + std::to_string(c.eval.chunk_tokens);
  if (!c.model.kernel.empty()) out += " --kernel " + c.model.kernel;
  return out;
}

Status read_options(EvalCommand& c) {
  for (const std::string& text : c.lengths) {
    const auto tokens = parse_tokens(text);
    if (!tokens.ok()) return Status(tokens.status().code(), "--length: " + tokens.status().message());
    if (std::ranges::find(c.eval.lengths, *tokens) == c.eval.lengths.end()) c.eval.lengths.push_back(*tokens);
  }
  c.eval.mode = c.mode == "A" ? eval::Mode::kA : eval::Mode::kB;
  c.eval.threads = c.model.threads;
  c.eval.kernel = c.model.kernel;
  const auto arms = eval::parse_arms(
      c.arms, [&c](const std::string& name) { return load_profile(name, c.model); }, c.eval.is_kld());
  if (!arms.ok()) return arms.status();
  c.eval.arms = *arms;
  if (c.eval.data.empty()) {
    auto texts = read_eval_texts(c.texts, !c.eval.is_kld(), c.text_dir);
    if (!texts.ok()) return texts.status();
    c.eval.documents = std::move(*texts);
  } else if (!c.texts.empty()) {
    return invalid_argument("--data brings its own texts: --text does not go with it");
  }
  return {};
}

void print_plan(const eval::Remaining& rest, double seconds) {
  std::cerr << "varve eval: " << rest.pairs << " answers to come";
  if (rest.done_pairs > 0) std::cerr << " (" << rest.done_pairs << " are there)";
  std::cerr << ", " << rest.read_tokens + rest.small_step_tokens << " tokens to read and at most "
            << rest.generated_tokens << " to generate: about " << format_duration(seconds) << " on this machine\n";
}

Status run_rest(eval::Evaluation& evaluation) {
  const eval::Remaining rest = evaluation.remaining();
  std::unique_ptr<Progress> progress;
  const Status s = evaluation.run([&](const std::string&, int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<Progress>("evaluating", static_cast<uint64_t>(total), Unit::kTokens);
    progress->update(static_cast<uint64_t>(done));
    return !interrupted();
  });
  progress.reset();
  if (s.code() != StatusCode::kCancelled) return s;
  const int64_t left = evaluation.left();
  return Status(StatusCode::kCancelled, "stopped after " + std::to_string(rest.pairs - left) + " of " +
                                            std::to_string(rest.pairs) + " answers; the same command goes on");
}

/// The control: the same dense cache twice in one process.
Status check_control(const eval::Summary& summary) {
  for (const eval::ArmRow& a : summary.arms) {
    if (a.arm == "dense2" && a.kld_max != 0) {
      return internal_error("the A/A control differs from dense at " + std::to_string(a.length) +
                            " tokens: largest KL " + std::to_string(a.kld_max));
    }
  }
  return {};
}

Status publish(const EvalCommand& c, const eval::Evaluation& evaluation) {
  const auto identity = eval::run_identity(evaluation.model(), c.eval);
  if (!identity.ok()) return identity.status();
  const auto& records = evaluation.store().records();
  const eval::Summary summary = eval::summarize_records(*identity, records);
  const std::string command = command_line(c);
  const std::string document = eval::summary_json(summary, *identity, command).dump(2) + "\n";
  std::vector<eval::LayerSensitivity> sensitivities;
  for (const eval::ArmSpec& arm : c.eval.arms) {
    if (auto s = eval::layer_sensitivity(arm.profile)) sensitivities.push_back(std::move(*s));
  }
  if (Status s = evaluation.store().write("summary.json", document); !s.ok()) return s;
  const std::string page = eval::html_report(summary, records, sensitivities, command);
  if (Status s = evaluation.store().write("report.html", page); !s.ok()) return s;
  if (Status s = check_control(summary); !s.ok()) return s;
  std::cout << (c.json ? document : eval::summary_table(summary));
  return {};
}

Status run_eval(EvalCommand& c) {
  catch_interrupts();
  if (Status s = read_options(c); !s.ok()) return s;
  const auto model = open_model(c.model);
  if (!model.ok()) return model.status();
  const auto evaluation = eval::Evaluation::prepare(*model, c.eval, c.out);
  if (!evaluation.ok()) return evaluation.status();
  const eval::Remaining rest = (*evaluation)->remaining();
  if (rest.pairs > 0) {
    const auto seconds = (*evaluation)->estimate_s();
    if (!seconds.ok()) return seconds.status();
    if (*seconds > kLongestWithoutYes && !c.yes) {
      return invalid_argument("this takes about " + format_duration(*seconds) + " (" + std::to_string(rest.tokens()) +
                              " tokens): say --yes, or ask for less");
    }
    print_plan(rest, *seconds);
    if (Status s = run_rest(**evaluation); !s.ok()) return s;
  }
  return publish(c, **evaluation);
}

}  // namespace

Action define_eval(CLI::App& app) {
  const auto c = std::make_shared<EvalCommand>();
  c->text_dir = default_text_dir().string();
  c->eval.n = 8;
  add_model_option(app, c->model);
  app.add_option("--suite", c->eval.suite, "what is measured: divergence on texts, or tasks")
      ->check(CLI::IsMember(eval::eval_suites()))
      ->capture_default_str();
  app.add_option("--arms", c->arms,
                 "what is compared with dense: profiles (auto, minima, k4v3, FILE.json; NAME@2 is rotation seed 2), "
                 "q8_0, q4_0, llama_f16 (llama.cpp's own cache), dense2 (control), floor, tq3, sabotage")
      ->delimiter(',')
      ->default_str("dense2,q8_0,q4_0,int8,minima");
  app.add_option("--length", c->lengths, "tokens of prompt and answer, or of a slice")
      ->delimiter(',')
      ->default_str("4K");
  app.add_option("-n,--n", c->eval.n, "slices (kld), haystacks of each task, or questions of a --data file")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--seed", c->eval.seed, "of texts, needles and the bootstrap")->capture_default_str();
  app.add_option("--tasks", c->eval.tasks, "of the suite [all of them]")->delimiter(',');
  app.add_option("--mode", c->mode,
                 "B: every arm reads over its own compressed pages; A: pages are compressed after dense read them")
      ->check(CLI::IsMember({"A", "B"}))
      ->capture_default_str();
  app.add_option("--out", c->out, "directory of the results; one that was begun by the same command goes on")
      ->type_name("DIR")
      ->required();
  app.add_option("--text", c->texts, "a text file, or a key of `varve pull --list`; may be repeated [the list]")
      ->type_name("FILE");
  app.add_option("--text-dir", c->text_dir, "where keys of texts are looked up")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option(
         "--data", c->eval.data,
         "questions of a published benchmark: LongBench v2 data.json (docmcq), a LongBench jsonl (longbench), a "
         "RULER jsonl (ruler, with --tasks)")
      ->type_name("FILE");
  app.add_option("-t,--threads", c->model.threads, "threads [all processors]")->check(CLI::Range(1, 512));
  app.add_option("--chunk", c->eval.chunk_tokens, "tokens of one step [128 for kld, 512 for tasks]")
      ->check(CLI::Range(1, 8192));
  app.add_option("--kernel", c->model.kernel, "force a kernel table (`varve bench support` lists them)");
  app.add_option("--weight-gemm", c->eval.weight_gemm,
                 "weight products of long steps: auto, ggml or fp32 [ggml for kld, auto for tasks]");
  app.add_flag("--yes", c->yes, "start although the estimate is above an hour");
  app.add_flag("--json", c->json, "print summary.json on stdout instead of tables (keys: docs/json.md)");
  app.footer(
      "Examples:\n"
      "  varve eval -m qwen2.5-coder-0.5b --length 8K --out kld-8k\n"
      "  varve eval -m qwen2.5-coder-0.5b --suite ruler --arms minima,auto,q4_0 --length 4K --n 8 --out ruler --yes\n"
      "  varve eval -m model.gguf --suite natural --tasks depth_sweep --text report.txt --arms auto --out depth\n"
      "  varve eval -m model.gguf --text report.txt --arms auto,minima@1,minima@2,minima@3 --out mine\n"
      "The directory gets items.jsonl, summary.json and report.html. Ctrl-C keeps what is done; the same command goes "
      "on,\n"
      "and a larger --n, more --arms, --length or --tasks add to it. docs/quality.md explains suites, arms and "
      "statistics.");
  return [c] {
    if (c->arms.empty()) c->arms = {"dense2", "q8_0", "q4_0", "int8", "minima"};
    if (c->lengths.empty()) c->lengths = {"4K"};
    return run_eval(*c);
  };
}

}  // namespace varve::cli
