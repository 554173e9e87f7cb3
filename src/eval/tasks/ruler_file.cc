#include "eval/tasks/loaded_item.h"
#include "eval/tasks/loaders.h"

namespace varve::eval {
namespace {

constexpr int kAnswerTokens = 128;
constexpr int kQaAnswerTokens = 32;

Result<Item> make_item(const Record& record, int64_t line, const std::string& task, const LoadOptions& options) {
  auto input = record.text("input");
  if (!input.ok()) return input.status();
  auto outputs = record.texts("outputs", 1);
  if (!outputs.ok()) return outputs.status();
  const bool qa = task.substr(0, 2) == "qa";

  Item item;
  item.task = task;
  item.id = item.group = "ruler/" + task + "/" + std::to_string(options.length) + "/" + std::to_string(line);
  item.length = options.length;
  item.context = std::move(*input);
  if (record.has("answer_prefix")) {
    auto prefix = record.text("answer_prefix");
    if (!prefix.ok()) return prefix.status();
    item.answer_prefix = std::move(*prefix);
  }
  item.references = std::move(*outputs);
  item.scorer = qa ? Scorer::kContainsAny : Scorer::kContains;
  item.answer_tokens = qa ? kQaAnswerTokens : kAnswerTokens;
  const int tokens = options.template_tokens + options.count_tokens(item.context) +
                     (item.answer_prefix.empty() ? 0 : options.count_tokens(item.answer_prefix)) + item.answer_tokens;
  if (tokens > options.length)
    return resource_exhausted(record.place() + ": prompt and answer take " + std::to_string(tokens) +
                              " tokens, more than the length of " + std::to_string(options.length));
  return item;
}

}  // namespace

Result<std::vector<Item>> load_ruler(const std::string& path, const std::string& task, const LoadOptions& options) {
  const auto document = read_file(path);
  if (!document.ok()) return document.status();
  return load_records(path, split_lines(*document), options,
                      [&](const Record& record, int64_t line) { return make_item(record, line, task, options); });
}

}  // namespace varve::eval
