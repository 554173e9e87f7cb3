#include "eval/tasks/tasks.h"

#include <functional>

#include "eval/tasks/generators.h"

namespace varve::eval {
namespace {

enum class Needs { kNothing, kText, kEntries };

struct Task {
  std::string suite, name;
  Needs needs;
  std::function<Result<Draft>(const std::string& name, const Source& source)> draft;
};

Task niah(const char* name, NiahKind kind) {
  const Needs needs = kind.hay == NiahKind::Hay::kProse ? Needs::kText : Needs::kNothing;
  return {"ruler", name, needs,
          [kind](const std::string& task, const Source& source) { return draft_niah(task, kind, source); }};
}

Task linkbench(const char* name, bool chain) {
  return {"natural", name, Needs::kText,
          [chain](const std::string& task, const Source& source) { return draft_linkbench(task, chain, source); }};
}

Task docmcq(const char* name, DocumentQuestion kind) {
  return {
      "docmcq", name, kind == DocumentQuestion::kEntry ? Needs::kEntries : Needs::kText,
      [kind](const std::string& task, const Source& source) { return draft_document_question(task, kind, source); }};
}

const std::vector<Task>& all_tasks() {
  using Hay = NiahKind::Hay;
  static const std::vector<Task> kTasks = {
      niah("niah_single_1", {Hay::kNoise, false, false, 1, 1, 1}),
      niah("niah_single_2", {Hay::kProse, false, false, 1, 1, 1}),
      niah("niah_single_3", {Hay::kProse, false, true, 1, 1, 1}),
      niah("niah_multikey_1", {Hay::kProse, false, false, 4, 1, 1}),
      niah("niah_multikey_2", {Hay::kNeedles, false, false, 1, 1, 1}),
      niah("niah_multikey_3", {Hay::kNeedles, true, true, 1, 1, 1}),
      niah("niah_multivalue", {Hay::kProse, false, false, 1, 4, 1}),
      niah("niah_multiquery", {Hay::kProse, false, false, 4, 1, 4}),
      {"ruler", "vt", Needs::kNothing, draft_variable_tracking},
      {"ruler", "cwe", Needs::kText, draft_common_words},
      {"ruler", "fwe", Needs::kNothing, draft_frequent_words},
      {"natural", "depth_sweep", Needs::kText, draft_depth_sweep},
      {"natural", "multi_code", Needs::kText, draft_multi_code},
      {"natural", "relational", Needs::kText, draft_relational},
      linkbench("linkbench_direct", false),
      linkbench("linkbench_chain", true),
      {"natural", "digit_table", Needs::kText, draft_digit_table},
      docmcq("after", DocumentQuestion::kAfter),
      docmcq("before", DocumentQuestion::kBefore),
      docmcq("entry", DocumentQuestion::kEntry),
      {"echo", "echo", Needs::kText, draft_echo},
  };
  return kTasks;
}

std::string join(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

Result<const Task*> find_task(std::string_view suite, std::string_view name) {
  const Result<std::vector<std::string>> names = task_names(suite);
  if (!names.ok()) return names.status();
  for (const Task& task : all_tasks())
    if (task.suite == suite && task.name == name) return &task;
  return invalid_argument("suite " + std::string(suite) + " has no task '" + std::string(name) +
                          "' (tasks: " + join(*names) + ")");
}

Status check(const TaskOptions& options) {
  if (!options.count_tokens) return invalid_argument("tasks need a way to count tokens");
  if (options.n < 1) return invalid_argument("n is " + std::to_string(options.n) + "; it must be 1 or more");
  if (options.length < 1)
    return invalid_argument("length is " + std::to_string(options.length) + "; it must be 1 or more");
  if (options.template_tokens < 0)
    return invalid_argument("template tokens are " + std::to_string(options.template_tokens) + ", less than 0");
  return {};
}

/// The documents that the task can use, as sentences.
Result<std::vector<std::shared_ptr<const SentenceText>>> prepare(const Task& task, const TaskOptions& options) {
  std::vector<std::shared_ptr<const SentenceText>> texts;
  if (task.needs == Needs::kNothing) return texts;
  for (const Document& document : options.documents) {
    if (task.needs == Needs::kEntries && !has_entries(document.text)) continue;
    auto text = std::make_shared<const SentenceText>(document, options.count_tokens);
    if (text->size() == 0) return invalid_argument("text " + document.name + " is empty");
    texts.push_back(std::move(text));
  }
  if (texts.empty())
    return invalid_argument(
        "task " + task.name + " needs a text" +
        (task.needs == Needs::kEntries ? " with entries to ask for, and none of the " : "; there are ") +
        std::to_string(options.documents.size()) + (task.needs == Needs::kEntries ? " given has them" : ""));
  return texts;
}

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const Task& task : all_tasks())
    if (names.empty() || names.back() != task.suite) names.push_back(task.suite);
  return names;
}

Result<std::vector<std::string>> task_names(std::string_view suite) {
  std::vector<std::string> names;
  for (const Task& task : all_tasks())
    if (task.suite == suite) names.push_back(task.name);
  if (names.empty())
    return invalid_argument("no suite is named '" + std::string(suite) + "' (suites of tasks: " + join(suite_names()) +
                            ")");
  return names;
}

Result<std::vector<Item>> make_items(std::string_view suite, std::string_view name, const TaskOptions& options) {
  const Result<const Task*> task = find_task(suite, name);
  if (!task.ok()) return task.status();
  if (const Status status = check(options); !status.ok()) return status;
  const auto texts = prepare(**task, options);
  if (!texts.ok()) return texts.status();

  std::vector<Item> items;
  for (int i = 0; i < options.n; ++i) {
    Source source{&options, i, texts->empty() ? nullptr : (*texts)[static_cast<size_t>(i) % texts->size()]};
    const Result<Draft> draft = (*task)->draft((*task)->name, source);
    if (!draft.ok()) return draft.status();
    Result<std::vector<Item>> made = finish(*draft, options);
    if (!made.ok()) return made.status();
    items.insert(items.end(), std::make_move_iterator(made->begin()), std::make_move_iterator(made->end()));
  }
  return items;
}

}  // namespace varve::eval
