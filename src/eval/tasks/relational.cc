#include <array>
#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr std::array<double, 4> kDepths = {0.15, 0.38, 0.61, 0.84};
constexpr int kAnswerTokens = 16;
constexpr int kMinSentences = 5;  // so that the four depths are different sentences

}  // namespace

Draft draft_relational(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  Draft draft{task, task, source.index,
              "The following document mentions the locker numbers of several people. Read it and remember who has "
              "which.\n\n"};
  const std::vector<size_t> names = random.sample(given_names().size(), kDepths.size());
  std::vector<std::string> needles, numbers;
  for (size_t i = 0; i < kDepths.size(); ++i) numbers.push_back(new_number(random, 4, taken));
  for (size_t i = 0; i < kDepths.size(); ++i) {
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
  hide_in_prose(draft, source, random, needles, {kDepths.begin(), kDepths.end()}, kMinSentences);
  return draft;
}

}  // namespace varve::eval
