#include <algorithm>
#include <cstdlib>

#include "eval/tasks/entries.h"
#include "eval/tasks/generators.h"
#include "eval/tasks/sentences.h"

namespace varve::eval {
namespace {

constexpr int kQuestions = 8;  ///< of each kind about one haystack, at most
constexpr int kChoices = 4;
constexpr int kReserveTokens = 320;
constexpr int kMinSentences = 12;
constexpr size_t kShortest = 40, kLongest = 240;  ///< bytes of a sentence that is asked about or offered

/// A part of the document that can be asked about or offered as an answer.
struct Part {
  std::string text;
  size_t mark = 0;  ///< index of its sentence
};

/// `answer` and three others of nearly its length, so that the length says nothing about which is right.
std::vector<std::string> make_choices(const std::string& answer, std::vector<std::string> others, Random& random) {
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  others.erase(std::remove(others.begin(), others.end(), answer), others.end());
  if (others.size() + 1 < kChoices) return {};
  random.shuffle(others);
  const auto distance = [&](const std::string& text) {
    return std::llabs(static_cast<long long>(text.size()) - static_cast<long long>(answer.size()));
  };
  std::stable_sort(others.begin(), others.end(),
                   [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  others.resize(kChoices - 1);
  others.push_back(answer);
  random.shuffle(others);
  return others;
}

/// The sentences of the haystack that come once, in one line each.
std::vector<Part> askable_sentences(const Haystack& haystack, int sentences) {
  std::vector<Part> parts;
  for (int i = 0; i < sentences; ++i) {
    const size_t begin = haystack.needle_offsets[static_cast<size_t>(i)];
    const size_t end = i + 1 < sentences ? haystack.needle_offsets[static_cast<size_t>(i) + 1] : haystack.text.size();
    const std::string_view raw = trimmed(std::string_view(haystack.text).substr(begin, end - begin));
    if (raw.size() < kShortest || raw.size() > kLongest || raw.find('"') != std::string_view::npos) continue;
    if (haystack.text.find(raw) != begin || haystack.text.find(raw, begin + 1) != std::string::npos) continue;
    parts.push_back({single_spaced(raw), static_cast<size_t>(i)});
  }
  return parts;
}

Question choice_question(std::string tag, std::string text, std::string prefix, const std::string& answer,
                         const std::vector<std::string>& choices, size_t needle) {
  // The closing mark belongs to the choice: a choice that is the beginning of another one is not likelier for it.
  Question question{std::move(tag), std::move(text), std::move(prefix) + " \""};
  question.references = {answer + "\""};
  for (const std::string& choice : choices) question.choices.push_back(choice + "\"");
  question.answer_tokens = 0;
  question.scorer = Scorer::kChoice;
  question.needles = {needle};
  return question;
}

/// Which sentence follows, or precedes, another one.
std::vector<Question> neighbour_questions(bool after, const Haystack& haystack, int sentences, Random random,
                                          const CountTokens& count) {
  const std::vector<Part> parts = askable_sentences(haystack, sentences);
  std::vector<size_t> pairs;  // parts[i] and parts[i + 1] are neighbours
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    if (parts[i].mark + 1 == parts[i + 1].mark) pairs.push_back(i);
  random.shuffle(pairs);
  const std::string side = after ? "after" : "before";
  std::vector<Question> questions;
  for (const size_t pair : pairs) {
    if (questions.size() == kQuestions) break;
    const Part& answer = parts[after ? pair + 1 : pair];
    const Part& given = parts[after ? pair : pair + 1];
    std::vector<std::string> others;
    for (const Part& part : parts)
      if (part.mark != answer.mark && part.mark != given.mark) others.push_back(part.text);
    const std::vector<std::string> choices = make_choices(answer.text, others, random);
    if (choices.empty()) break;
    Question question = choice_question(
        std::to_string(questions.size()),
        "\n\nWhich sentence of the document comes directly " + side + " this one? \"" + given.text + "\"",
        "The sentence directly " + side + " it is:", answer.text, choices, answer.mark);
    if (tokens_beside(question, count) <= kReserveTokens) questions.push_back(std::move(question));
  }
  return questions;
}

/// Which value an entry has.
std::vector<Question> entry_questions(const Haystack& haystack, Random random, const CountTokens& count) {
  std::vector<Entry> entries = find_entries(haystack.text);
  std::vector<std::string> values;
  for (const Entry& entry : entries) values.push_back(entry.value);
  random.shuffle(entries);
  std::vector<Question> questions;
  for (const Entry& entry : entries) {
    if (questions.size() == kQuestions) break;
    const std::vector<std::string> choices = make_choices(entry.value, values, random);
    if (choices.empty()) break;
    const auto next = std::upper_bound(haystack.needle_offsets.begin(), haystack.needle_offsets.end(), entry.offset);
    Question question =
        choice_question(std::to_string(questions.size()), "\n\nWhat does the document say at " + entry.name + "?",
                        "At " + entry.name + " it says:", entry.value, choices,
                        static_cast<size_t>(next - haystack.needle_offsets.begin()) - 1);
    if (tokens_beside(question, count) <= kReserveTokens) questions.push_back(std::move(question));
  }
  return questions;
}

/// The sentence that the document is read from: any one, or, where the document has entries, one where they are dense
/// enough for questions.
size_t choose_start(const SentenceText& text, int length, Random& random) {
  std::string whole;
  std::vector<size_t> begins;
  for (const std::string_view sentence : text.sentences()) {
    begins.push_back(whole.size());
    whole += sentence;
  }
  const std::vector<Entry> entries = find_entries(whole);
  std::vector<size_t> dense;
  for (size_t i = 0; i + kQuestions < entries.size(); ++i)
    if (entries[i + kQuestions].offset - entries[i].offset < static_cast<size_t>(length)) dense.push_back(i);
  if (dense.empty()) return random.below(begins.size());
  const size_t at = entries[random.pick(dense)].offset;
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), at) - begins.begin()) - 1;
}

}  // namespace

bool has_entries(std::string_view text) { return find_entries(text).size() >= kChoices; }

Draft draft_document_question(const std::string& task, DocumentQuestion kind, const Source& source) {
  const std::string name = "docmcq/" + source.text->name();
  Random random = source.random(name);
  Draft draft{task, name, source.index, "Read the following document.\n\n"};
  draft.document = source.text->name();
  draft.min_units = kMinSentences;
  draft.max_units = source.text->size();
  draft.reserve_tokens = kReserveTokens;
  const size_t start = choose_start(*source.text, source.options->length, random);
  // The needles are the sentences themselves: only their places matter.
  draft.fill = [text = source.text, start](int sentences) {
    std::vector<Needle> marks;
    for (int i = 0; i < sentences; ++i) marks.push_back({"", i});
    return insert_needles(text->from(start, sentences), marks);
  };
  draft.ask = [kind, task, random = source.random(name + "/" + task), name = source.text->name(),
               count = source.options->count_tokens](const Haystack& haystack,
                                                     int sentences) -> Result<std::vector<Question>> {
    std::vector<Question> questions =
        kind == DocumentQuestion::kEntry
            ? entry_questions(haystack, random, count)
            : neighbour_questions(kind == DocumentQuestion::kAfter, haystack, sentences, random, count);
    if (questions.empty())
      return invalid_argument("text " + name + " gives no question of docmcq/" + task + " from " +
                              std::to_string(sentences) + " sentences: fewer than " + std::to_string(kChoices) +
                              " answers to choose from");
    return questions;
  };
  return draft;
}

}  // namespace varve::eval
