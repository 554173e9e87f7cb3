#pragma once
// A conversation over one engine session. Each turn renders the whole history with the model's template (templates may
// rewrite what came before), and only what differs from the session's tokens is fed again.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run_report.h"
#include "cli/sampling_options.h"
#include "model/chat.h"
#include "model/sampler.h"
#include "varve/engine.h"

namespace varve::cli {

class Conversation {
 public:
  using OnText = std::function<bool(std::string_view)>;  ///< false stops the answer

  /// chat_template: a Jinja template, or empty for the model's own. kUnsupported when there is none (a base model). The
  /// engine outlives the conversation, and so does a drafter.
  static Result<std::unique_ptr<Conversation>> create(Engine& engine, const SamplingOptions& sampling,
                                                      const std::string& chat_template,
                                                      const engine::Speculation& speculation);

  /// Empty: no system message. Holds from the next turn on, for the whole history.
  void set_system(std::string text) { system_ = std::move(text); }
  /// Puts a text before the next message.
  void attach(std::string text) { documents_.push_back(std::move(text)); }
  /// Forgets what is attached; returns how many texts that were.
  size_t detach();
  /// Forgets messages and attached texts, and frees the session's pages. The system message stays.
  Status reset();

  /// One turn. On an error the history is as before: kContextOverflow (with the numbers) when the turn does not fit,
  /// kCancelled when it was interrupted before the answer began. An answer that on_text stopped is kept as far as it
  /// came.
  Result<Run> say(const std::string& message, const OnText& on_text);

  int turns() const { return turns_; }
  int tokens() const { return static_cast<int>(engine_.tokens(session_).size()); }

 private:
  Conversation(Engine& engine, const SamplingOptions& sampling, const engine::Speculation& speculation)
      : engine_(engine), sampling_(sampling), speculation_(speculation) {}
  Status start_sampler();
  /// Makes the session hold a beginning of `tokens`; returns how long it is.
  Result<int> keep_common(std::span<const int32_t> tokens);
  Result<std::vector<int32_t>> render(const std::vector<model::ChatMessage>& history, model::ChatPrompt& prompt) const;
  model::ChatMessage read_reply(const model::ChatPrompt& prompt, const engine::Generation& generation) const;

  Engine& engine_;
  const SamplingOptions sampling_;
  const engine::Speculation speculation_;
  std::unique_ptr<model::ChatTemplate> template_;
  std::unique_ptr<model::Sampler> sampler_;  ///< of the whole conversation: penalties see earlier answers
  SessionId session_ = 0;                    ///< 0: none yet
  int64_t started_seconds_ = 0;  ///< the date that templates print; it must not change the history's first tokens
  std::string system_;
  std::vector<std::string> documents_;
  std::vector<model::ChatMessage> history_;  ///< without the system message
  int turns_ = 0;
};

}  // namespace varve::cli
