#include <array>
#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr std::array<int, 4> kPercent = {15, 38, 61, 84};
constexpr int kAnswerTokens = 16;
constexpr int kMinSentences = 5;  // so that the four depths are different sentences

}  // namespace

Draft draft_relational(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  Draft draft{task, task, source.index,
              "The following document mentions the locker numbers of several people. Read it and remember who has "
              "which.\n\n"};
  const std::vector<size_t> names = random.sample(given_names().size(), kPercent.size());
  std::vector<std::string> needles, numbers;
  for (size_t i = 0; i < kPercent.size(); ++i) numbers.push_back(new_number(random, 4, taken));
  for (size_t i = 0; i < kPercent.size(); ++i) {
    const std::string fact = given_names()[names[i]] + " was given the locker with the number";
    needles.push_back(fact + " " + numbers[i] + ". ");
    Question question;
    question.tag = given_names()[names[i]];
    question.text = "\n\nWhat is the number of the locker that " + question.tag + " was given?";
    question.answer_prefix = fact;
    question.references = {numbers[i]};
    question.choices = numbers;  // another one of them is a swap and not a miss
    question.answer_tokens = kAnswerTokens;
    question.scorer = Scorer::kFirstNumber;
    question.needles = {i};
    draft.questions.push_back(question);
  }
  const Placement place = [](int pieces) {
    std::vector<int> at;
    for (const int percent : kPercent) at.push_back(percent * pieces / 100);
    return at;
  };
  hide_in_prose(draft, source, random, needles, place, kMinSentences);
  return draft;
}

}  // namespace varve::eval
