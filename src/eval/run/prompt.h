#pragma once
// Items to tokens: the model's chat template around context and question, or the text as it is for a base model.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/tasks/item.h"
#include "model/chat.h"
#include "model/model.h"

namespace varve::eval {

using Tokens = std::vector<int32_t>;

class PromptMaker {
 public:
  static Result<std::unique_ptr<PromptMaker>> create(const model::Model& model);

  /// The user's turn (context and question), the beginning of the assistant's turn, the answer prefix.
  Result<Tokens> prompt(const Item& item) const { return tokens(item, item.question, item.answer_prefix); }
  /// What the same prompt with another question shares with it at least: where questions branch off.
  Result<Tokens> other_prompt(const Item& item) const { return tokens(item, "?", ""); }
  /// The tokens of `text` after the item's prompt, as the tokenizer makes them of both together where that leaves the
  /// prompt's own tokens alone.
  Result<Tokens> continuation(const Item& item, std::span<const int32_t> prompt, const std::string& text) const;
  /// What template and tokenizer add to the texts of an item, and a few tokens for what may merge differently.
  Result<int> template_tokens() const;

  bool has_template() const { return template_ != nullptr; }

 private:
  explicit PromptMaker(const model::Model& model) : model_(model) {}
  Result<Tokens> tokens(const Item& item, const std::string& question, const std::string& answer) const;

  const model::Model& model_;
  std::unique_ptr<model::ChatTemplate> template_;
};

/// Tokens that all of `prompts` begin with.
size_t common_prefix(std::span<const Tokens> prompts);

}  // namespace varve::eval
