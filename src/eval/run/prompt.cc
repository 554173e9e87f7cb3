#include "eval/run/prompt.h"

#include <algorithm>

#include "model/text.h"

namespace varve::eval {
namespace {

constexpr int64_t kDate = 1735689600;  // 2025-01-01: templates that print the date must print the same one every day
constexpr int kSpareTokens = 8;

bool begins_with(std::span<const int32_t> tokens, std::span<const int32_t> prefix) {
  return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

}  // namespace

Result<std::unique_ptr<PromptMaker>> PromptMaker::create(const model::Model& model) {
  std::unique_ptr<PromptMaker> out(new PromptMaker(model));
  auto made = model::ChatTemplate::create(model, "");
  if (!made.ok()) return made.status();
  if ((*made)->is_explicit()) out->template_ = std::move(*made);
  return out;
}

Result<Tokens> PromptMaker::tokens(const Item& item, const std::string& question, const std::string& answer) const {
  const std::string user = item.context + question;
  if (!template_) return model::tokenize(model_, user + answer, true, false);
  model::ChatOptions options;
  options.now_seconds = kDate;
  options.enable_thinking = false;  // answers are short and scored as they are
  auto prompt = template_->apply({{.role = "user", .content = user}}, options);
  if (!prompt.ok()) return prompt.status();
  prompt->text += answer;
  return model::chat_tokens(model_, *prompt);
}

Result<Tokens> PromptMaker::continuation(const Item& item, std::span<const int32_t> prompt,
                                         const std::string& text) const {
  auto whole = tokens(item, item.question, item.answer_prefix + text);
  if (!whole.ok()) return whole.status();
  if (whole->size() > prompt.size() && begins_with(*whole, prompt)) {
    return Tokens(whole->begin() + std::ptrdiff_t(prompt.size()), whole->end());
  }
  return model::tokenize(model_, text, false, false);
}

Result<int> PromptMaker::template_tokens() const {
  const auto empty = tokens({}, "", "");
  if (!empty.ok()) return empty.status();
  return static_cast<int>(empty->size()) + kSpareTokens;
}

size_t common_prefix(std::span<const Tokens> prompts) {
  size_t shared = prompts.empty() ? 0 : prompts[0].size();
  for (const Tokens& p : prompts) {
    const size_t n = std::min(shared, p.size());
    shared = static_cast<size_t>(std::mismatch(p.begin(), p.begin() + std::ptrdiff_t(n), prompts[0].begin()).first -
                                 p.begin());
  }
  return shared;
}

}  // namespace varve::eval
