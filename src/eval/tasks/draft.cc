#include "eval/tasks/draft.h"

#include <algorithm>

#include "eval/tasks/fit.h"

namespace varve::eval {
namespace {

/// The context: without white space at its end, which the question brings.
std::string context_of(const Draft& draft, const Haystack& haystack) {
  std::string context = draft.preamble + haystack.text;
  context.erase(context.find_last_not_of(" \t\r\n\f") + 1);
  return context;
}

Item make_item(const Draft& draft, const Question& question, const TaskOptions& options) {
  Item item;
  item.id = draft_name(draft.task, options, draft.index) + (question.tag.empty() ? "" : "/" + question.tag);
  item.task = draft.task;
  item.group = draft_name(draft.haystack, options, draft.index);
  item.length = options.length;
  item.question = question.text;
  item.answer_prefix = question.answer_prefix;
  item.references = question.references;
  item.choices = question.choices;
  item.answer_tokens = question.answer_tokens;
  item.scorer = question.scorer;
  return item;
}

}  // namespace

int tokens_beside(const Question& question, const CountTokens& count) {
  int answer = question.answer_tokens;
  if (answer == 0) {
    for (const std::string& text : question.references) answer = std::max(answer, count(text));
    for (const std::string& text : question.choices) answer = std::max(answer, count(text));
  }
  return count(question.text) + (question.answer_prefix.empty() ? 0 : count(question.answer_prefix)) + answer;
}

std::string draft_name(const std::string& task, const TaskOptions& options, int index) {
  return task + "/" + std::to_string(options.length) + "/seed" + std::to_string(options.seed) + "/" +
         std::to_string(index);
}

Result<std::vector<Item>> finish(const Draft& draft, const TaskOptions& options) {
  const CountTokens& count = options.count_tokens;
  int beside = draft.reserve_tokens;
  for (const Question& question : draft.questions) beside = std::max(beside, tokens_beside(question, count));
  beside += options.template_tokens;

  const auto tokens_at = [&](int units) { return count(context_of(draft, draft.fill(units))) + beside; };
  const int units = fit_units(draft.max_units, options.length, tokens_at);
  if (units < draft.min_units || units < 0)
    return resource_exhausted("length " + std::to_string(options.length) + " is too small for " + draft.task +
                              ", which needs " + std::to_string(tokens_at(std::min(draft.min_units, draft.max_units))) +
                              " tokens at least");
  if (units == draft.max_units && !draft.document.empty())
    return resource_exhausted("text " + draft.document + " is too short for " + draft.task + ": all of it makes " +
                              std::to_string(tokens_at(units)) + " of the " + std::to_string(options.length) +
                              " tokens of the length");

  const Haystack haystack = draft.fill(units);
  const std::string context = context_of(draft, haystack);
  const std::vector<double> depths = token_depths(haystack.text, haystack.needle_offsets, count);
  Result<std::vector<Question>> questions = draft.ask ? draft.ask(haystack, units) : draft.questions;
  if (!questions.ok()) return questions.status();
  std::vector<Item> items;
  for (const Question& question : *questions) {
    items.push_back(make_item(draft, question, options));
    items.back().context = context;
    for (const size_t needle : question.needles) items.back().depths.push_back(depths[needle]);
  }
  return items;
}

}  // namespace varve::eval
