#pragma once
// Questions that a user brings as files of published benchmarks. None of them comes with varve.

#include <string>
#include <vector>

#include "eval/tasks/item.h"
#include "eval/tasks/text_tokens.h"
#include "varve/status.h"

namespace varve::eval {

struct LoadOptions {
  CountTokens count_tokens;
  int length = 16384;          ///< as TaskOptions::length; a longer document loses its middle
  int template_tokens = 0;     ///< as TaskOptions
  int n = 0;                   ///< first n questions of the file; 0: all
  bool by_likelihood = false;  ///< LongBench v2: kChoice over the letters A to D instead of a generated sentence
};

/// LongBench v2 `data.json`: an array of objects with domain, difficulty, length, question, choice_A .. choice_D,
/// answer and context (_id where there is one). Errors of all loaders: kNotFound or kIoError for the file, kCorrupt
/// naming file, line and field for what is malformed or of another schema, kResourceExhausted with both numbers when a
/// question alone does not fit the length.
Result<std::vector<Item>> load_longbench_v2(const std::string& path, const LoadOptions& options);

/// A LongBench (v1) `DATASET.jsonl`: one object a line with input, context, answers, all_classes, dataset. Of the
/// datasets, those that are scored by F1, ROUGE-L or accuracy; kUnsupported lists them for another one.
Result<std::vector<Item>> load_longbench_v1(const std::string& path, const LoadOptions& options);

/// A RULER `validation.jsonl`: one object a line with input and outputs (index, length, answer_prefix where there are),
/// whole prompts that are never truncated. One reference suffices for tasks named "qa...", as in RULER; the others need
/// all of them. kResourceExhausted when a prompt and its answer are longer than the length.
Result<std::vector<Item>> load_ruler(const std::string& path, const std::string& task, const LoadOptions& options);

}  // namespace varve::eval
