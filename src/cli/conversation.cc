#include "cli/conversation.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "cli/anchors.h"
#include "cli/prefill.h"
#include "model/text.h"

namespace varve::cli {
namespace {

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(n), b.begin()).first - a.begin());
}

}  // namespace

Result<std::unique_ptr<Conversation>> Conversation::create(Engine& engine, const SamplingOptions& sampling,
                                                           const std::string& chat_template,
                                                           const engine::Speculation& speculation) {
  std::unique_ptr<Conversation> out(new Conversation(engine, sampling, speculation));
  auto made = model::ChatTemplate::create(*engine.model(), chat_template);
  if (!made.ok()) return made.status();
  if (!(*made)->is_explicit()) {
    return unsupported(engine.model()->info().path +
                       " has no chat template (a base model?): continue a text with varve run --raw, or give a "
                       "template with --chat-template");
  }
  out->template_ = std::move(*made);
  if (Status s = out->start_sampler(); !s.ok()) return s;
  out->started_seconds_ =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return out;
}

Status Conversation::start_sampler() {
  auto sampler = model::Sampler::create(engine_.model(), sampling_.sampler);
  if (!sampler.ok()) return sampler.status();
  sampler_ = std::move(*sampler);
  return {};
}

size_t Conversation::detach() {
  const size_t n = documents_.size();
  documents_.clear();
  return n;
}

Status Conversation::reset() {
  detach();
  history_.clear();
  turns_ = 0;
  engine_.finish(session_);
  session_ = 0;
  return start_sampler();
}

Result<std::vector<int32_t>> Conversation::render(const std::vector<model::ChatMessage>& history,
                                                  model::ChatPrompt& prompt) const {
  std::vector<model::ChatMessage> messages;
  if (!system_.empty()) messages.push_back({.role = "system", .content = system_});
  messages.insert(messages.end(), history.begin(), history.end());
  model::ChatOptions options;
  options.now_seconds = started_seconds_;
  auto applied = template_->apply(messages, options);
  if (!applied.ok()) return applied.status();
  prompt = std::move(*applied);
  return model::chat_tokens(*engine_.model(), prompt);
}

model::ChatMessage Conversation::read_reply(const model::ChatPrompt& prompt,
                                            const engine::Generation& generation) const {
  const bool cut = generation.reason != engine::StopReason::kEnd;
  auto parsed = template_->parse(prompt, generation.text, cut);
  // A reply that breaks the template's own rules still was the model's reply.
  if (!parsed.ok()) return {.role = "assistant", .content = generation.text};
  parsed->role = "assistant";
  return std::move(*parsed);
}

Result<int> Conversation::keep_common(std::span<const int32_t> tokens) {
  // One token at least is fed: the answer begins with its logits.
  const size_t wanted = std::min(common_prefix(tokens, engine_.tokens(session_)), tokens.size() - 1);
  if (wanted > 0) {
    const auto kept = engine_.truncate(session_, static_cast<int>(wanted));
    if (!kept.ok() || *kept > 0) return kept;
  }
  // Nothing of the session can be used; the prefix cache may know the beginning from before.
  engine_.finish(session_);
  session_ = 0;
  const auto opened = engine_.open(tokens);
  if (!opened.ok()) return opened.status();
  session_ = opened->session;
  return opened->cached_tokens;
}

Result<Run> Conversation::say(const std::string& message, const OnText& on_text) {
  const double started = now_s();
  std::string content;
  for (const std::string& document : documents_) content += document + "\n\n";
  content += message;
  std::vector<model::ChatMessage> history = history_;
  history.push_back({.role = "user", .content = std::move(content)});
  model::ChatPrompt prompt;
  const auto tokens = render(history, prompt);
  if (!tokens.ok()) return tokens.status();
  const int total = static_cast<int>(tokens->size());
  if (total >= engine_.context_tokens()) {
    return context_overflow("this turn would make the conversation " + std::to_string(total) + " tokens long; it has " +
                            std::to_string(this->tokens()) + " now, and the context of " +
                            std::to_string(engine_.context_tokens()) + " must leave room for an answer");
  }

  const auto kept = keep_common(*tokens);
  if (!kept.ok()) return kept.status();
  // A template may change the message's text; then it ages like any other.
  size_t from = 0;
  if (const auto span = find_text(*engine_.model(), *tokens, system_, from); span.ok()) {
    if (Status s = engine_.mark(session_, span->begin, span->end); !s.ok()) return s;
  }
  std::vector<float> logits;
  const auto rest = std::span<const int32_t>(*tokens).subspan(static_cast<size_t>(*kept));
  if (Status s = feed_with_progress(engine_, session_, rest, logits); !s.ok()) return s;
  const double read_s = now_s() - started;

  auto generation = engine::generate(
      engine_, session_, *sampler_, logits,
      {.max_tokens = sampling_.max_tokens, .stops = prompt.stops, .on_text = on_text, .speculation = speculation_});
  if (!generation.ok()) return generation.status();
  if (generation->reason == engine::StopReason::kCaller && generation->text.empty()) {
    return Status(StatusCode::kCancelled, "stopped before the answer began");
  }
  history.push_back(read_reply(prompt, *generation));
  history_ = std::move(history);
  documents_.clear();
  ++turns_;

  Run run;
  run.answer = generation->text;
  run.prompt_tokens = total;
  run.cached_tokens = *kept;
  run.ttft_s = read_s + generation->first_token_s;
  run.generation = std::move(*generation);
  run.profile = engine_.profile();
  run.stats = engine_.stats();
  return run;
}

}  // namespace varve::cli
