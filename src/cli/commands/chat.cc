#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/documents.h"
#include "cli/interrupt.h"
#include "cli/line_input.h"
#include "cli/model_options.h"
#include "cli/report.h"
#include "cli/run_report.h"
#include "cli/sampling_options.h"
#include "cli/speculation_options.h"
#include "cli/terminal.h"
#include "engine/text_stream.h"

namespace varve::cli {
namespace {

// At a terminal a second Ctrl-C often comes before a prefill step has ended; it must not take the conversation with it.
constexpr int kInterruptsThatEnd = 3;

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  SpeculationOptions speculation;
  std::string system, chat_template;
  bool verbose = false;
};

/// The loop between a person (or a pipe) and a conversation. Answers go to stdout, all else to stderr. A person sees
/// errors and goes on; in a pipe the first error ends the program.
class Chat {
 public:
  Chat(const ChatOptions& options, Engine& engine, Conversation& conversation)
      : engine_(engine),
        conversation_(conversation),
        person_(isatty(STDIN_FILENO) == 1),
        verbose_(options.verbose || stderr_is_terminal()) {}

  Status loop();

 private:
  struct Command {
    const char* name;
    const char* argument;
    const char* help;
    Status (Chat::*action)(const std::string& argument);
  };
  static std::span<const Command> commands();

  Status handle(const std::string& line);
  Status run_command(const std::string& line);
  Status say(const std::string& message);
  void summarize(const Run& run) const;
  void note(const std::string& text) const;
  void prompt(const char* text) const;

  Status reset(const std::string&);
  Status system(const std::string& text);
  Status file(const std::string& path);
  Status paste(const std::string&);
  Status stats(const std::string&);
  Status help(const std::string&);
  Status exit(const std::string&);

  Engine& engine_;
  Conversation& conversation_;
  LineInput input_{STDIN_FILENO};
  const bool person_;
  const bool verbose_;
  bool done_ = false;
  std::optional<Run> last_;
};

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kCommands[] = {
      {"/reset", "", "forget the conversation; the system message stays", &Chat::reset},
      {"/system", "TEXT", "set the system message; without TEXT remove it", &Chat::system},
      {"/file", "PATH", "add a document to the next message; without PATH drop what was added", &Chat::file},
      {"/paste", "", "a message of several lines, up to a line with a single dot", &Chat::paste},
      {"/stats", "", "what the last turn took and what the cache holds", &Chat::stats},
      {"/help", "", "this list", &Chat::help},
      {"/exit", "", "end (also Ctrl-D)", &Chat::exit},
  };
  return kCommands;
}

/// For the person only: a pipe has no use for it.
void Chat::note(const std::string& text) const {
  if (person_ || verbose_) std::cerr << text << "\n";
}

void Chat::prompt(const char* text) const {
  if (person_ && stderr_is_terminal()) std::cerr << text << std::flush;
}

Status Chat::loop() {
  bool asked_to_end = false;
  while (!done_) {
    prompt("> ");
    std::string line;
    const LineInput::Event event = input_.next(line);
    if (event == LineInput::Event::kEnd) {
      prompt("\n");
      break;
    }
    if (event == LineInput::Event::kInterrupted) {
      prompt("\n");
      if (!person_ || terminated() || asked_to_end) return Status(StatusCode::kCancelled, "interrupted");
      clear_interrupt();
      asked_to_end = true;
      note("Ctrl-C again, Ctrl-D or /exit ends the conversation.");
      continue;
    }
    asked_to_end = false;
    const Status s = handle(line);
    if (!person_ && !s.ok()) return s;
    if (terminated()) return Status(StatusCode::kCancelled, "terminated");
    if (s.code() == StatusCode::kCancelled) {
      note(one_line(s.message()));
    } else {
      report("chat", s);
    }
    clear_interrupt();
  }
  return {};
}

Status Chat::handle(const std::string& line) {
  if (line.starts_with('/')) return run_command(line);
  if (line.find_first_not_of(" \t") == std::string::npos) return {};
  return say(line);
}

Status Chat::run_command(const std::string& line) {
  const size_t space = line.find_first_of(" \t");
  const std::string name = line.substr(0, space);
  std::string argument;
  if (const size_t begin = line.find_first_not_of(" \t", space);
      space != std::string::npos && begin != std::string::npos)
    argument = line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  std::string known;
  for (const Command& command : commands()) {
    if (name == command.name) return (this->*command.action)(argument);
    known += (known.empty() ? "" : ", ") + std::string(command.name);
  }
  return invalid_argument("unknown command " + name + " (known: " + known +
                          "; a message that starts with a slash needs a space before it)");
}

Status Chat::say(const std::string& message) {
  if (const size_t bad = engine::find_invalid_utf8(message); bad != std::string::npos) {
    return invalid_argument("the message is not UTF-8: byte " + std::to_string(bad) + " of " +
                            std::to_string(message.size()));
  }
  bool shown = false;
  auto run = conversation_.say(message, [&](std::string_view text) {
    std::cout << text << std::flush;
    shown = true;
    return !interrupted() && std::cout.good();
  });
  if (shown) std::cout << "\n" << std::flush;
  if (!run.ok()) return run.status();
  if (!std::cout) return io_error("writing to stdout failed");
  summarize(*run);
  const bool stopped = run->generation.reason == engine::StopReason::kCaller;
  last_ = std::move(*run);
  if (stopped && !person_) return Status(StatusCode::kCancelled, "stopped; the answer is incomplete");
  return {};
}

void Chat::summarize(const Run& run) const {
  const engine::StopReason reason = run.generation.reason;
  const KvStats& kv = run.stats.kv;
  char line[256];
  if (verbose_) {
    std::snprintf(
        line, sizeof(line),
        "[turn %d: %d prompt tokens, %d cached; first token after %.2f s, %d at %.1f tok/s (%s); KV %s for %s of "
        "f16, %.2fx]",
        conversation_.turns(), run.prompt_tokens, run.cached_tokens, run.ttft_s, run.generation.tokens,
        run.generation.tokens_per_s(), engine::stop_reason_name(reason), format_bytes(kv.physical_bytes).c_str(),
        format_bytes(kv.dense_bytes).c_str(), kv.ratio());
    std::cerr << line << "\n";
    const engine::SpeculationStats& speculation = run.generation.speculation;
    if (!speculation.drafter.empty()) std::cerr << "[" << speculation_line(speculation) << "]\n";
  } else if (reason == engine::StopReason::kMaxTokens || reason == engine::StopReason::kContextFull) {
    std::snprintf(line, sizeof(line), "the answer was cut after %d tokens: %s", run.generation.tokens,
                  reason == engine::StopReason::kMaxTokens ? "-n allows no more" : "the context is full");
    std::cerr << line << "\n";
  }
}

Status Chat::reset(const std::string&) {
  last_.reset();
  return conversation_.reset();
}

Status Chat::system(const std::string& text) {
  conversation_.set_system(text);
  return {};
}

Status Chat::file(const std::string& path) {
  if (path.empty()) {
    note(std::to_string(conversation_.detach()) + " documents dropped");
    return {};
  }
  if (path == "-") return invalid_argument("/file -: stdin is the conversation itself");
  auto text = read_text(path);
  if (!text.ok()) return text.status();
  note(path + ": " + format_bytes(text->size()) + " go before the next message");
  conversation_.attach(std::move(*text));
  return {};
}

Status Chat::paste(const std::string&) {
  note("Paste, then a line with a single dot.");
  std::string message, line;
  while (true) {
    const LineInput::Event event = input_.next(line);
    if (event == LineInput::Event::kInterrupted) return Status(StatusCode::kCancelled, "nothing was sent");
    if (event == LineInput::Event::kEnd || line == ".") break;
    message += (message.empty() ? "" : "\n") + line;
  }
  if (message.find_first_not_of(" \t\n") == std::string::npos) return invalid_argument("/paste: there was no text");
  return say(message);
}

Status Chat::stats(const std::string&) {
  if (!last_) {
    std::cerr << "no turn yet; the context holds " << engine_.context_tokens() << " tokens\n";
    return {};
  }
  std::cerr << "turn " << conversation_.turns() << ", " << conversation_.tokens() << " of " << engine_.context_tokens()
            << " tokens; the last turn had\n";
  last_->stats = engine_.stats();
  print_run(std::cerr, *last_);
  return {};
}

Status Chat::help(const std::string&) {
  char line[128];
  for (const Command& c : commands()) {
    std::snprintf(line, sizeof(line), "%-8s %-5s %s\n", c.name, c.argument, c.help);
    std::cerr << line;
  }
  std::cerr << "Ctrl-C stops an answer.\n";
  return {};
}

Status Chat::exit(const std::string&) {
  done_ = true;
  return {};
}

Status chat(const ChatOptions& options) {
  catch_interrupts(kInterruptsThatEnd);
  if (Status s = check_writable(options.model.trace); !s.ok()) return s;
  if (Status s = check_speculation_options(options.speculation); !s.ok()) return s;
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  const auto model = open_model(options.model);
  if (!model.ok()) return model.status();
  TraceFile trace;  // outlives the engine, which writes to it
  const auto engine = open_engine(*model, options.model, *profile, trace);
  if (!engine.ok()) return engine.status();
  const auto speculation = open_speculation(options.speculation, options.model, **engine, options.sampling.sampler);
  if (!speculation.ok()) return speculation.status();
  const auto conversation =
      Conversation::create(**engine, options.sampling, options.chat_template, speculation->speculation);
  if (!conversation.ok()) return conversation.status();
  (*conversation)->set_system(options.system);
  if (isatty(STDIN_FILENO) == 1 && stderr_is_terminal()) {
    std::cerr << (*model)->info().name << ", profile " << profile->name << ", " << (*engine)->context_tokens()
              << " tokens of context. /help lists the commands.\n";
  }
  if (Status s = Chat(options, **engine, **conversation).loop(); !s.ok()) return s;
  return trace.status();
}

}  // namespace

Action define_chat(CLI::App& app) {
  const auto options = std::make_shared<ChatOptions>();
  add_model_option(app, options->model);
  app.add_option("--system", options->system, "system message");
  app.add_option("--chat-template", options->chat_template, "a Jinja template instead of the model's own");
  app.add_flag("--verbose", options->verbose, "say on stderr what each turn took, also when that is not a terminal");
  add_engine_options(app, options->model);
  add_sampling_options(app, options->sampling);
  add_speculation_options(app, options->speculation);
  app.footer(
      "In the conversation: /reset /system TEXT /file PATH /paste /stats /help /exit. Ctrl-C stops an answer.\n"
      "Examples:\n"
      "  varve chat -m smollm2-135m --system \"Answer in one sentence.\"\n"
      "  printf '/file report.txt\\nWhat was the revenue?\\n' | varve chat -m model.gguf");
  return [options] { return chat(*options); };
}

}  // namespace varve::cli
