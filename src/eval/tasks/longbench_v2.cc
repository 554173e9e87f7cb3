#include <array>

#include "eval/tasks/loaded_item.h"
#include "eval/tasks/loaders.h"

namespace varve::eval {
namespace {

constexpr int kAnswerTokens = 128;
constexpr std::array<const char*, 4> kChoices = {"choice_A", "choice_B", "choice_C", "choice_D"};

Result<Item> make_item(const Record& record, int64_t line, const LoadOptions& options) {
  for (const char* field : {"domain", "difficulty", "length"})
    if (const auto text = record.text(field); !text.ok()) return text.status();
  const auto question = record.text("question"), answer = record.text("answer"), context = record.text("context");
  for (const auto* text : {&question, &answer, &context})
    if (!text->ok()) return text->status();
  if (answer->size() != 1 || (*answer)[0] < 'A' || (*answer)[0] > 'D')
    return record.wrong("answer", "must be A, B, C or D and is '" + *answer + "'");

  std::string name = std::to_string(line);
  if (record.has("_id")) {
    const auto id = record.text("_id");
    if (!id.ok()) return id.status();
    name = *id;
  }
  Item item;
  item.task = "longbench_v2";
  item.id = item.group = item.task + "/" + std::to_string(options.length) + "/" + name;
  item.length = options.length;
  item.question = "\n\nQuestion: " + *question + "\nChoices:";
  for (size_t i = 0; i < kChoices.size(); ++i) {
    const auto choice = record.text(kChoices[i]);
    if (!choice.ok()) return choice.status();
    item.question += std::string("\n(") + static_cast<char>('A' + i) + ") " + *choice;
  }
  item.references = {*answer};
  item.choices = {"A", "B", "C", "D"};
  if (options.by_likelihood) {
    item.answer_prefix = "The correct answer is (";
    item.answer_tokens = 0;
    item.scorer = Scorer::kChoice;
  } else {
    item.question += "\n\nAnswer in this form: \"The correct answer is (A)\", with the letter of the right choice.";
    item.answer_tokens = kAnswerTokens;
    item.scorer = Scorer::kChoiceLetter;
  }
  const Status fitted = fit_document(item, "Read the following text and answer the question about it.\n\n<text>\n",
                                     *context, "\n</text>", record.place(), options);
  if (!fitted.ok()) return fitted;
  return item;
}

}  // namespace

Result<std::vector<Item>> load_longbench_v2(const std::string& path, const LoadOptions& options) {
  const auto document = read_file(path);
  if (!document.ok()) return document.status();
  const auto raw = split_array(path, *document);
  if (!raw.ok()) return raw.status();
  return load_records(path, *raw, options,
                      [&](const Record& record, int64_t line) { return make_item(record, line, options); });
}

}  // namespace varve::eval
