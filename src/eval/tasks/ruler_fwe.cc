#include <cmath>
#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kAnswerTokens = 50;
constexpr int kLetters = 6;
constexpr int kTokensPerWord = 50;  ///< the vocabulary has length / 50 words, as in RULER
constexpr int kAsked = 3;

/// Occurrences of the word of rank k >= 1 in a text of `words` words: the zeta distribution with exponent 2.
int occurrences(int words, int k) {
  constexpr double kZeta2 = 1.6449340668482264;  // pi^2 / 6
  return static_cast<int>(std::floor(words / (double(k) * double(k) * kZeta2)));
}

}  // namespace

Draft draft_frequent_words(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  std::vector<std::string> ranked = {"...."};  // the most frequent word says nothing
  while (static_cast<int>(ranked.size()) < std::max(16, source.options->length / kTokensPerWord))
    if (std::string word = random_letters(random, kLetters, 'a'); taken.insert(word).second) ranked.push_back(word);

  Draft draft{
      task, task, source.index,
      "Read the following coded text and track the frequency of each coded word. Find the three most frequently "
      "appeared coded words. "};
  Question question;
  question.text =
      "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently "
      "appeared words in the above coded text?";
  question.answer_prefix = "Answer: According to the coded text above, the three most frequently appeared words are:";
  question.answer_tokens = kAnswerTokens;
  question.references.assign(ranked.begin() + 1, ranked.begin() + 1 + kAsked);
  draft.questions = {question};
  draft.min_units = 100;  // below it the ranks that are asked for are not apart
  draft.max_units = 2 * source.options->length;
  draft.fill = [ranked, order = Random(random.next())](int words) {
    std::vector<const std::string*> list;
    for (size_t k = 0; k < ranked.size(); ++k)
      list.insert(list.end(), static_cast<size_t>(occurrences(words, static_cast<int>(k) + 1)), &ranked[k]);
    Random shuffled = order;
    shuffled.shuffle(list);
    Haystack haystack;
    for (const std::string* word : list) haystack.text += (haystack.text.empty() ? "" : " ") + *word;
    return haystack;
  };
  return draft;
}

}  // namespace varve::eval
