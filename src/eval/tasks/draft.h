#pragma once
// From a generator's parts to items: the size of the haystack, the budget, the depths.

#include <functional>
#include <string>
#include <vector>

#include "eval/tasks/haystack.h"
#include "eval/tasks/item.h"
#include "eval/tasks/tasks.h"
#include "varve/status.h"

namespace varve::eval {

struct Question {
  std::string tag;   ///< tells it from the other questions of the haystack, in the id; may be empty for the only one
  std::string text;  ///< begins with the white space that separates it from the context
  std::string answer_prefix;
  std::vector<std::string> references;
  std::vector<std::string> choices;
  int answer_tokens = 128;
  Scorer scorer = Scorer::kContains;
  std::vector<size_t> needles;  ///< whose depths the item carries
};

/// One haystack and what is asked about it.
struct Draft {
  std::string task;
  std::string haystack;  ///< the group's name: the task, or what tasks over the same haystack have in common
  int index = 0;
  std::string preamble;  ///< before the haystack, with the white space between them
  int min_units = 0;     ///< fewest sentences, lines or words that the task needs
  int max_units = 0;
  std::string document;  ///< the text that gives the units and may be too short; empty: units are made up
  /// The haystack of so many units in [0, max_units]; below min_units only its size matters.
  std::function<Haystack(int units)> fill;

  std::vector<Question> questions;
  int reserve_tokens = 0;  ///< kept free beside the context when the questions need less
  /// Makes the questions when they depend on what the haystack came to hold. None may need more than reserve_tokens.
  std::function<Result<std::vector<Question>>(const Haystack& haystack, int units)> ask;
};

/// Tokens that a question takes beside the context: its text, the answer prefix, and what is generated, or the longest
/// reference or choice where nothing is.
int tokens_beside(const Question& question, const CountTokens& count);

/// "TASK/LENGTH/seedSEED/INDEX".
std::string draft_name(const std::string& task, const TaskOptions& options, int index);

/// Items of the largest haystack with which every question fits the length. kResourceExhausted, with the numbers, when
/// min_units are too many or when the document ends before the length is reached.
Result<std::vector<Item>> finish(const Draft& draft, const TaskOptions& options);

}  // namespace varve::eval
