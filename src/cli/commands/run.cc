#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/clock.h"
#include "cli/anchors.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/prefill.h"
#include "cli/run_report.h"
#include "cli/sampling_options.h"
#include "cli/speculation_options.h"
#include "engine/generate.h"
#include "model/chat.h"
#include "model/text.h"

namespace varve::cli {
namespace {

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  SpeculationOptions speculation;
  std::string prompt, system, chat_template, questions, summary;
  std::vector<std::string> files, anchors;
  double contrast = 0;
  bool raw = false;
  bool json = false;
};

using Tokens = std::vector<int32_t>;

/// What is read before the question: the anchors, then the other files. Each is read once: stdin gives its text only
/// once.
Result<std::vector<std::string>> read_documents(const RunOptions& options) {
  std::vector<std::string> paths = options.anchors, texts;
  paths.insert(paths.end(), options.files.begin(), options.files.end());
  for (const std::string& path : paths) {
    auto text = read_text(path);
    if (!text.ok()) return text.status();
    if (texts.size() < options.anchors.size() && text->empty()) {
      return invalid_argument("--anchor " + path + " is empty: there is nothing to keep");
    }
    texts.push_back(std::move(*text));
  }
  return texts;
}

Status check_not_blank(const std::string& prompt) {
  if (prompt.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  return invalid_argument("the prompt is empty: give -p TEXT, -f FILE or --questions FILE");
}

/// One prompt per question: the documents and the question through the model's chat template, or as they are.
class PromptBuilder {
 public:
  static Result<std::unique_ptr<PromptBuilder>> create(const model::Model& model, const RunOptions& options,
                                                       std::span<const std::string> documents) {
    std::unique_ptr<PromptBuilder> out(new PromptBuilder(model, options, documents));
    auto made = model::ChatTemplate::create(model, options.chat_template);
    if (!made.ok()) return made.status();
    // A base model has no template: its text continues as it is.
    if (!options.raw && (*made)->is_explicit()) out->template_ = std::move(*made);
    return out;
  }

  /// with_documents false: what the model is asked when it has nothing to read.
  Result<Tokens> build(const std::string& question, bool with_documents = true) const {
    const std::string user = join_documents(with_documents ? documents_ : std::span<const std::string>(), question);
    if (!template_) return model::tokenize(model_, user, true, false);
    std::vector<model::ChatMessage> messages;
    if (!options_.system.empty()) messages.push_back({.role = "system", .content = options_.system});
    messages.push_back({.role = "user", .content = user});
    model::ChatOptions chat;
    chat.now_seconds = std::time(nullptr);  // some templates print the date
    const auto prompt = template_->apply(messages, chat);
    if (!prompt.ok()) return prompt.status();
    return model::chat_tokens(model_, *prompt);
  }

 private:
  PromptBuilder(const model::Model& model, const RunOptions& options, std::span<const std::string> documents)
      : model_(model), options_(options), documents_(documents) {}
  const model::Model& model_;
  const RunOptions& options_;
  std::span<const std::string> documents_;
  std::unique_ptr<model::ChatTemplate> template_;
};

/// Tokens that every prompt starts with; each keeps at least one of its own so that there is something to feed.
size_t shared_prefix(const std::vector<Tokens>& prompts) {
  size_t shared = prompts[0].size() - 1;
  for (const Tokens& p : prompts) {
    shared = std::min(shared, p.size() - 1);
    shared = static_cast<size_t>(
        std::mismatch(p.begin(), p.begin() + std::ptrdiff_t(shared), prompts[0].begin()).first - p.begin());
  }
  return shared;
}

class Runner {
 public:
  Runner(Engine& engine, const RunOptions& options, const engine::Speculation& speculation)
      : engine_(engine), options_(options), speculation_(speculation) {}

  /// Feeds `tokens` to the session and answers. prior: the prompt without its documents, read only for contrast.
  Result<Run> answer(SessionId session, std::span<const int32_t> tokens, int cached_tokens, double started,
                     const Tokens& prior) {
    std::vector<float> logits, prior_logits;
    if (Status s = feed_with_progress(engine_, session, tokens, logits); !s.ok()) return s;
    engine::Contrast contrast{.weight = options_.contrast};
    if (options_.contrast > 0) {
      const auto opened = engine_.start();
      if (!opened.ok()) return opened.status();
      contrast.prior = *opened;
      if (Status s = feed_with_progress(engine_, *opened, prior, prior_logits); !s.ok()) return s;
      contrast.prior_logits = prior_logits;
    }
    auto sampler = model::Sampler::create(engine_.model(), options_.sampling.sampler);
    if (!sampler.ok()) return sampler.status();
    Run run;
    run.prompt_tokens = cached_tokens + static_cast<int>(tokens.size());
    run.cached_tokens = cached_tokens;
    run.profile = engine_.profile();
    const double fed = now_s() - started;
    engine::GenerateOptions generate_options{.max_tokens = options_.sampling.max_tokens,
                                             .stops = {},
                                             .on_text = {},
                                             .speculation = speculation_,
                                             .contrast = contrast};
    generate_options.on_text = [&](std::string_view text) {
      if (!options_.json) std::cout << text << std::flush;
      return !interrupted();
    };
    auto generation = engine::generate(engine_, session, **sampler, logits, generate_options);
    if (!generation.ok()) return generation.status();
    run.generation = std::move(*generation);
    run.answer = run.generation.text;
    run.ttft_s = fed + run.generation.first_token_s;
    run.stats = engine_.stats();
    run.contrast = options_.contrast;
    run.prior_tokens = options_.contrast > 0 ? static_cast<int>(prior.size()) : 0;
    engine_.finish(contrast.prior);
    return run;
  }

 private:
  Engine& engine_;
  const RunOptions& options_;
  const engine::Speculation speculation_;
};

/// Marks the system message and the --anchor files of a prompt, each where it comes after the one before. A text that
/// the tokenizer changes cannot be found, which is an error: the user counts on it.
Status mark_anchors(Engine& engine, SessionId session, const Tokens& prompt, const RunOptions& options,
                    std::span<const std::string> documents) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (!options.system.empty() && !options.raw) texts.emplace_back("--system", options.system);
  for (size_t i = 0; i < options.anchors.size(); ++i)
    texts.emplace_back("--anchor " + options.anchors[i], documents[i]);
  size_t from = 0;
  for (const auto& [what, text] : texts) {
    const auto span = find_text(*engine.model(), prompt, text, from);
    if (!span.ok()) return Status(span.status().code(), what + ": " + span.status().message());
    if (Status s = engine.mark(session, span->begin, span->end); !s.ok()) return s;
  }
  return {};
}

Status check_lengths(const std::vector<Tokens>& prompts, const Engine& engine) {
  for (const Tokens& p : prompts) {
    if (int(p.size()) >= engine.context_tokens()) {
      return context_overflow("the prompt has " + std::to_string(p.size()) + " tokens; the context of " +
                              std::to_string(engine.context_tokens()) + " leaves no room for an answer");
    }
  }
  return {};
}

/// The document on stdout with --json, and in the --summary file.
Status publish(const RunOptions& options, const nlohmann::ordered_json& document) {
  const std::string text = document.dump(2) + "\n";
  if (options.json) std::cout << text;
  if (options.summary.empty()) return {};
  errno = 0;
  std::ofstream file(options.summary, std::ios::trunc);
  if (!(file << text) || !file.flush()) return io_error(options.summary + ": " + std::strerror(errno));
  return {};
}

Status run_all(const RunOptions& options) {
  catch_interrupts();
  const std::vector<std::string> outputs = {options.summary, options.model.trace};
  std::vector<std::string> inputs = options.files;
  inputs.insert(inputs.end(), options.anchors.begin(), options.anchors.end());
  inputs.push_back(options.questions);
  if (Status s = check_distinct(outputs, inputs); !s.ok()) return s;
  for (const std::string& file : outputs) {
    if (Status s = check_writable(file); !s.ok()) return s;
  }
  int from_stdin = options.questions == "-" ? 1 : 0;
  for (const auto* files : {&options.anchors, &options.files}) from_stdin += int(std::ranges::count(*files, "-"));
  if (from_stdin > 1) {
    return invalid_argument("stdin (-) is named " + std::to_string(from_stdin) + " times; it can be read once");
  }
  std::vector<std::string> questions = {options.prompt};
  if (!options.questions.empty()) {
    if (!options.prompt.empty()) return invalid_argument("-p and --questions exclude each other");
    auto lines = read_lines(options.questions);
    if (!lines.ok()) return lines.status();
    questions = std::move(*lines);
  }
  if (Status s = check_speculation_options(options.speculation); !s.ok()) return s;
  if (options.contrast > 0 && options.files.empty() && options.anchors.empty()) {
    return invalid_argument(
        "--contrast compares with the prompt without its documents; there is no -f and no --anchor");
  }
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  // Files and an empty prompt are checked before a model is loaded for nothing.
  const auto documents = read_documents(options);
  if (!documents.ok()) return documents.status();
  for (const std::string& q : questions) {
    if (Status s = check_not_blank(join_documents(*documents, q)); !s.ok()) return s;
    if (options.contrast > 0 && q.find_first_not_of(" \t\r\n") == std::string::npos) {
      return invalid_argument("--contrast needs a question: without one the prompt is its documents");
    }
  }
  const auto model = open_model(options.model);
  if (!model.ok()) return model.status();
  TraceFile trace;  // outlives the engine, which writes to it
  const auto engine = open_engine(*model, options.model, *profile, trace);
  if (!engine.ok()) return engine.status();
  const auto builder = PromptBuilder::create(**model, options, *documents);
  if (!builder.ok()) return builder.status();
  std::vector<Tokens> prompts, priors(questions.size());
  for (size_t i = 0; i < questions.size(); ++i) {
    auto tokens = (*builder)->build(questions[i]);
    if (!tokens.ok()) return tokens.status();
    prompts.push_back(std::move(*tokens));
    if (options.contrast == 0) continue;
    auto prior = (*builder)->build(questions[i], /*with_documents=*/false);
    if (!prior.ok()) return prior.status();
    priors[i] = std::move(*prior);
  }
  if (Status s = check_lengths(prompts, **engine); !s.ok()) return s;

  const auto speculation = open_speculation(options.speculation, options.model, **engine, options.sampling.sampler);
  if (!speculation.ok()) return speculation.status();
  Runner runner(**engine, options, speculation->speculation);
  const auto session = (*engine)->start();
  if (!session.ok()) return session.status();
  if (Status s = mark_anchors(**engine, *session, prompts[0], options, *documents); !s.ok()) return s;
  if (options.questions.empty()) {
    auto run = runner.answer(*session, prompts[0], 0, now_s(), priors[0]);
    if (!run.ok()) return run.status();
    if (!options.json) {
      std::cout << "\n";
      print_run(std::cerr, *run);
    }
    if (Status s = publish(options, run_json(*run)); !s.ok()) return s;
    return interrupted() ? Status(StatusCode::kCancelled, "stopped; the answer is incomplete") : trace.status();
  }

  const double started = now_s();
  const size_t shared = shared_prefix(prompts);
  std::vector<float> unused;
  const std::span<const int32_t> document(prompts[0].data(), shared);
  if (Status s = feed_with_progress(**engine, *session, document, unused); !s.ok()) return s;
  const double read_s = now_s() - started;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto fork = (*engine)->fork(*session);
    if (!fork.ok()) return fork.status();
    // The first question pays for reading the document; the others find it in the cache.
    const int cached = i == 0 ? 0 : static_cast<int>(shared);
    const double question_started = i == 0 ? now_s() - read_s : now_s();
    if (!options.json) std::cout << "> " << questions[i] << "\n";
    auto run = runner.answer(*fork, std::span<const int32_t>(prompts[i]).subspan(shared), int(shared), question_started,
                             priors[i]);
    if (!run.ok()) return run.status();
    run->cached_tokens = cached;
    (*engine)->finish(*fork);
    nlohmann::ordered_json entry = {{"question", questions[i]}};
    entry.update(run_json(*run));
    runs.push_back(std::move(entry));
    if (!options.json) {
      std::cout << "\n\n";
      if (i + 1 == prompts.size()) print_run(std::cerr, *run);
    }
    if (interrupted()) return Status(StatusCode::kCancelled, "stopped after " + std::to_string(i + 1) + " questions");
  }
  if (Status s = publish(options, runs); !s.ok()) return s;
  return trace.status();
}

}  // namespace

Action define_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  add_model_option(app, options->model);
  app.add_option("-p,--prompt", options->prompt, "the question or text");
  app.add_option("-f,--file", options->files, "documents to read before the prompt, in this order; - is stdin")
      ->type_name("FILE");
  app.add_option("--anchor", options->anchors, "like -f, read first, and its pages stay in the profile's anchor tier")
      ->type_name("FILE");
  app.add_option("--questions", options->questions,
                 "one question a line, each on its own fork of the documents; answers as a JSON array with --json")
      ->type_name("FILE");
  app.add_option("--system", options->system, "system message");
  app.add_option("--chat-template", options->chat_template, "a Jinja template instead of the model's own");
  app.add_flag("--raw", options->raw, "continue the text as it is, without a chat template");
  app.add_option("--summary", options->summary, "also write the JSON document to this file")->type_name("FILE");
  app.add_flag("--json", options->json, "print one JSON document on stdout (keys: docs/json.md)");
  add_engine_options(app, options->model);
  add_sampling_options(app, options->sampling);
  app.add_option("--contrast", options->contrast,
                 "weigh what the documents change: logits (1 + a) with them - a without them, for the first 32 tokens "
                 "of an answer; 0.5 is usual, 0 is off")
      ->check(CLI::Range(0.0, engine::Contrast::kMostWeight))
      ->capture_default_str();
  add_speculation_options(app, options->speculation);
  app.footer(
      "Examples:\n"
      "  varve run -m smollm2-135m -p \"Why is the sky blue?\"\n"
      "  varve run -m model.gguf -f report.txt -p \"What was the revenue?\" --profile minima --json\n"
      "  varve run -m model.gguf --anchor rules.txt -f log.txt -p \"Which rule was broken?\"\n"
      "  varve run -m model.gguf -f manual.txt --questions questions.txt --json > answers.json\n"
      "  varve run -m model.gguf -f code.py -p \"Repeat the file with x renamed.\" --speculate lookup\n"
      "The answer streams to stdout; the table of what it cost goes to stderr.");
  return [options] { return run_all(*options); };
}

}  // namespace varve::cli
