#pragma once
// The generated tasks, by name. docs/tasks.md says what each one asks.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/tasks/item.h"
#include "eval/tasks/text_tokens.h"
#include "varve/status.h"

namespace varve::eval {

struct TaskOptions {
  /// Haystack i is cut from documents[i % size]; tasks over noise or word lists need none, `cwe` takes its words from
  /// them.
  std::vector<Document> documents;
  CountTokens count_tokens;
  int length = 4096;        ///< tokens of template, context, question, answer prefix and answer together
  int template_tokens = 0;  ///< of `length`, what the caller's chat template adds
  int n = 8;                ///< haystacks; a task that asks several questions of one haystack makes more items
  uint64_t seed = 1;
};

/// "ruler", "natural", "docmcq", "echo".
std::vector<std::string> suite_names();

/// The tasks of a suite in the order of a report; kInvalidArgument lists the suites when there is no such one.
Result<std::vector<std::string>> task_names(std::string_view suite);

/// Haystack i depends on seed, task, length and i, not on n: a run of 32 begins with the run of 8. The same options
/// give the same bytes on every platform. Every item keeps
///   template_tokens + count(context) + count(question) + count(answer_prefix) + answer <= length,
/// where answer is answer_tokens or, where nothing is generated, the longest reference or choice.
/// Items of one haystack share `group` and `context`, also across tasks where the haystack is the same
/// (linkbench_direct and linkbench_chain, the tasks of docmcq).
/// @return kInvalidArgument: unknown suite or task (lists the valid ones), n or length not positive, no document where
///   one is needed; kResourceExhausted, with both numbers: the document is shorter than the haystack, or the length is
///   too small for the task
Result<std::vector<Item>> make_items(std::string_view suite, std::string_view task, const TaskOptions& options);

}  // namespace varve::eval
