#include <algorithm>

#include "eval/tasks/generators.h"
#include "eval/tasks/sentences.h"

namespace varve::eval {
namespace {

constexpr int kSpans = 8;
constexpr int kCueWords = 8;
constexpr int kCopiedWords = 48;
constexpr int kReserveTokens = 400;  ///< of cue, cue again and copy, in any tokenizer that does not spell
constexpr int kMinSentences = 40;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f'; }

/// The end of the first `words` words of the text; npos when it has fewer.
size_t end_of_words(std::string_view text, int words) {
  size_t at = 0;
  for (int i = 0; i < words; ++i) {
    while (at < text.size() && is_space(text[at])) ++at;
    if (at == text.size()) return std::string_view::npos;
    while (at < text.size() && !is_space(text[at])) ++at;
  }
  return at;
}

/// The span that begins at a sentence, if its first words come once only.
bool make_span(std::string_view text, size_t begin, const CountTokens& count, Question& question) {
  const std::string_view rest = text.substr(begin);
  const size_t cue_end = end_of_words(rest, kCueWords), end = end_of_words(rest, kCueWords + kCopiedWords);
  if (end == std::string_view::npos) return false;
  const std::string cue(rest.substr(0, cue_end));
  if (text.find(cue) != begin || text.find(cue, begin + 1) != std::string_view::npos) return false;
  question.text = "\n\nRepeat the passage of the document that begins with these words: " + cue;
  question.answer_prefix = cue;
  question.references = {std::string(rest.substr(cue_end, end - cue_end))};
  question.answer_tokens = 0;
  question.scorer = Scorer::kCopy;
  return tokens_beside(question, count) <= kReserveTokens;
}

}  // namespace

Draft draft_echo(const std::string& task, const Source& source) {
  Random random = source.random(task);
  Draft draft{task, task, source.index, "Read the following document.\n\n"};
  draft.document = source.text->name();
  draft.min_units = kMinSentences;
  draft.max_units = source.text->size();
  draft.reserve_tokens = kReserveTokens;
  const size_t start = random.below(static_cast<uint64_t>(source.text->size()));
  // The needles are the sentences themselves: only their places matter.
  draft.fill = [text = source.text, start](int sentences) {
    std::vector<Needle> marks;
    for (int i = 0; i < sentences; ++i) marks.push_back({"", i});
    return insert_needles(text->from(start, sentences), marks);
  };
  draft.ask = [count = source.options->count_tokens, task](const Haystack& haystack,
                                                           int sentences) -> Result<std::vector<Question>> {
    std::vector<Question> questions;
    for (int i = 0; i < kSpans; ++i) {
      // From the middle of each sixteenth of the first half on, the first sentence that can be asked for.
      for (int s = (2 * i + 1) * sentences / (4 * kSpans); s < (2 * i + 3) * sentences / (4 * kSpans); ++s) {
        Question question;
        question.tag = std::string("span") + std::to_string(i);
        question.needles = {static_cast<size_t>(s)};
        if (!make_span(haystack.text, haystack.needle_offsets[static_cast<size_t>(s)], count, question)) continue;
        questions.push_back(question);
        break;
      }
    }
    if (questions.empty())
      return invalid_argument(task + ": none of " + std::to_string(sentences) + " sentences begins a passage of " +
                              std::to_string(kCueWords + kCopiedWords) + " words whose first " +
                              std::to_string(kCueWords) + " words come once");
    return questions;
  };
  return draft;
}

}  // namespace varve::eval
