#include <algorithm>

#include "eval/tasks/generators.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kCommon = 10;
constexpr int kAnswerTokens = 120;
constexpr int kShortLength = 4096;  ///< below it RULER repeats less

struct Repeats {
  int common, uncommon;
};

std::string numbered(size_t i, const std::string& word) { return std::to_string(i + 1) + ". " + word; }

/// The numbered list of the first kCommon words and `uncommon` others, in an order that depends on both numbers.
std::string numbered_list(const std::vector<std::string>& words, size_t first, int uncommon, Repeats repeats,
                          Random random) {
  std::vector<const std::string*> list;
  for (int i = 0; i < kCommon; ++i) list.insert(list.end(), static_cast<size_t>(repeats.common), &words[first + i]);
  for (int i = 0; i < uncommon; ++i)
    list.insert(list.end(), static_cast<size_t>(repeats.uncommon), &words[first + kCommon + i]);
  random.shuffle(list);
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) text.append(i ? " " : "").append(numbered(i, *list[i]));
  return text;
}

std::string preamble() {
  return "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones "
         "that "
         "appear most often.\n";
}

std::string question_text() { return "\nQuestion: What are the 10 most common words in the above list?"; }

std::string answer_prefix() { return "Answer: The top 10 words that appear most often in the list are:"; }

}  // namespace

Result<Draft> draft_common_words(const std::string& task, const Source& source) {
  Random random = source.random(task);
  const bool is_short = source.options->length < kShortLength;
  const Repeats repeats = is_short ? Repeats{6, 1} : Repeats{30, 3};
  const Repeats example_repeats = is_short ? Repeats{3, 1} : Repeats{10, 3};
  const int example_uncommon = is_short ? 10 : 30;

  std::string text;
  for (const std::string_view sentence : source.text->sentences()) text += sentence;
  auto words = std::make_shared<std::vector<std::string>>(vocabulary(text));
  random.shuffle(*words);
  const int example_words = kCommon + example_uncommon;
  const int others = static_cast<int>(words->size()) - example_words - kCommon;
  if (others < 1)
    return resource_exhausted("text " + source.text->name() + " has " + std::to_string(words->size()) +
                              " different words; " + task + " needs more than " +
                              std::to_string(example_words + kCommon));

  std::string solved = preamble() + numbered_list(*words, 0, example_uncommon, example_repeats, Random(random.next())) +
                       question_text() + "\n" + answer_prefix();
  for (size_t i = 0; i < kCommon; ++i) solved.append(" ").append(numbered(i, (*words)[i]));

  Draft draft{task, task, source.index, solved + "\n\n" + preamble()};
  Question question;
  question.text = question_text();
  question.answer_prefix = answer_prefix();
  question.answer_tokens = kAnswerTokens;
  question.references.assign(words->begin() + example_words, words->begin() + example_words + kCommon);
  draft.questions = {question};
  draft.min_units = 1;
  draft.max_units = others;
  draft.document = source.text->name();
  draft.fill = [words, example_words, repeats, order = Random(random.next())](int uncommon) {
    return Haystack{numbered_list(*words, static_cast<size_t>(example_words), uncommon, repeats, order), {}};
  };
  return draft;
}

}  // namespace varve::eval
