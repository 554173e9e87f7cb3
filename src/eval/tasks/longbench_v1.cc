#include <algorithm>
#include <array>

#include "eval/tasks/loaded_item.h"
#include "eval/tasks/loaders.h"

namespace varve::eval {
namespace {

enum class Asks { kAnswer, kSummary, kQuerySummary, kClass, kDialogue };

/// A dataset, its metric and LongBench's limit of generated tokens.
struct Dataset {
  const char* name;
  Asks asks;
  Scorer scorer;
  int answer_tokens;
  bool first_line_only;
};

constexpr std::array<Dataset, 13> kDatasets = {{
    {"narrativeqa", Asks::kAnswer, Scorer::kF1, 128, false},
    {"qasper", Asks::kAnswer, Scorer::kF1, 128, false},
    {"multifieldqa_en", Asks::kAnswer, Scorer::kF1, 64, false},
    {"hotpotqa", Asks::kAnswer, Scorer::kF1, 32, false},
    {"2wikimqa", Asks::kAnswer, Scorer::kF1, 32, false},
    {"musique", Asks::kAnswer, Scorer::kF1, 32, false},
    {"triviaqa", Asks::kAnswer, Scorer::kF1, 32, true},
    {"gov_report", Asks::kSummary, Scorer::kRougeL, 512, false},
    {"multi_news", Asks::kSummary, Scorer::kRougeL, 512, false},
    {"qmsum", Asks::kQuerySummary, Scorer::kRougeL, 512, false},
    {"samsum", Asks::kDialogue, Scorer::kRougeL, 128, true},
    {"trec", Asks::kClass, Scorer::kAccuracy, 64, true},
    {"lsht", Asks::kClass, Scorer::kAccuracy, 64, true},
}};

const char* preamble(Asks asks) {
  switch (asks) {
    case Asks::kAnswer: return "Read the following text, then answer the question about it as briefly as you can.\n\n";
    case Asks::kSummary: return "Read the following text, then write a summary of it in one page or less.\n\n";
    case Asks::kQuerySummary:
      return "Read the following transcript of a meeting, then answer the query about it in one or more sentences.\n\n";
    case Asks::kClass: return "The following examples show how questions or texts are classified.\n\n";
    case Asks::kDialogue: return "The following examples show dialogues and their summaries.\n\n";
  }
  return "";
}

std::string question_text(Asks asks, const std::string& input) {
  switch (asks) {
    case Asks::kAnswer: return "\n\nQuestion: " + input;
    case Asks::kSummary: return "\n\nSummarise the text.";
    case Asks::kQuerySummary: return "\n\nQuery: " + input;
    case Asks::kClass:
    case Asks::kDialogue: return "\n\n" + input;  // brings its own "Question: ... Type:" or "Dialogue: ... Summary:"
  }
  return "";
}

Result<const Dataset*> find_dataset(const Record& record) {
  const auto name = record.text("dataset");
  if (!name.ok()) return name.status();
  for (const Dataset& dataset : kDatasets)
    if (*name == dataset.name) return &dataset;
  std::string known;
  for (const Dataset& dataset : kDatasets) known += (known.empty() ? "" : ", ") + std::string(dataset.name);
  return unsupported(record.place() + ": field 'dataset' is '" + *name + "', which is not scored here (" + known + ")");
}

Result<Item> make_item(const Record& record, int64_t line, const LoadOptions& options) {
  const auto dataset = find_dataset(record);
  if (!dataset.ok()) return dataset.status();
  const Dataset& kind = **dataset;
  const auto input = record.text("input"), context = record.text("context");
  for (const auto* text : {&input, &context})
    if (!text->ok()) return text->status();
  auto answers = record.texts("answers", 1);
  if (!answers.ok()) return answers.status();

  Item item;
  if (kind.scorer == Scorer::kAccuracy) {
    auto classes = record.texts("all_classes", 2);
    if (!classes.ok()) return classes.status();
    for (const std::string& answer : *answers)
      if (std::find(classes->begin(), classes->end(), answer) == classes->end())
        return record.wrong("answers", "holds '" + answer + "', which is not one of all_classes");
    item.choices = std::move(*classes);
  }
  item.task = kind.name;
  item.id = item.group = "longbench/" + item.task + "/" + std::to_string(options.length) + "/" + std::to_string(line);
  item.length = options.length;
  item.question = question_text(kind.asks, *input);
  if (kind.asks == Asks::kAnswer) item.answer_prefix = "Answer:";
  item.references = std::move(*answers);
  item.scorer = kind.scorer;
  item.answer_tokens = kind.answer_tokens;
  item.first_line_only = kind.first_line_only;
  const Status fitted = fit_document(item, preamble(kind.asks), *context, "", record.place(), options);
  if (!fitted.ok()) return fitted;
  return item;
}

}  // namespace

Result<std::vector<Item>> load_longbench_v1(const std::string& path, const LoadOptions& options) {
  const auto document = read_file(path);
  if (!document.ok()) return document.status();
  return load_records(path, split_lines(*document), options,
                      [&](const Record& record, int64_t line) { return make_item(record, line, options); });
}

}  // namespace varve::eval
