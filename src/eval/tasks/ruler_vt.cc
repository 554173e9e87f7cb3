#include <algorithm>
#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/noise.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kHops = 4;
constexpr int kAnswerTokens = 30;
constexpr int kExampleLines = 5;

/// One chain of assignments: the first variable gets the value, each other one the variable before it.
struct Chain {
  std::string value;
  std::vector<std::string> variables;

  explicit Chain(Random& random) : value(random_number(random, 5)) {
    std::set<std::string> taken;
    while (variables.size() <= kHops)
      if (std::string name = random_letters(random, 5, 'A'); taken.insert(name).second) variables.push_back(name);
  }

  std::string assignment(size_t i) const {
    return "VAR " + variables[i] + " = " + (i == 0 ? value : "VAR " + variables[i - 1]) + "\n";
  }
};

Haystack hide(const Chain& chain, const GridDepths& depths, int lines) {
  std::vector<int> at = depths.positions(std::vector<int>(static_cast<size_t>(lines), 1), kHops + 1);
  std::sort(at.begin(), at.end());  // the chain is told in its order
  std::vector<Needle> needles;
  for (size_t i = 0; i < at.size(); ++i) needles.push_back({chain.assignment(i), at[i]});
  return insert_needles(noise_lines(lines), needles);
}

std::string preamble() {
  return "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
}

std::string question_text(const Chain& chain) {
  return "\nQuestion: Find all variables that are assigned the value " + chain.value + " in the text above.";
}

std::string answer_prefix(const Chain& chain) {
  return "Answer: According to the chain(s) of variable assignment in the text above, " + std::to_string(kHops + 1) +
         " variables are assigned the value " + chain.value + ", they are:";
}

/// A solved case before the one that is asked.
std::string example(Random& random) {
  const Chain chain(random);
  const GridDepths depths(random);
  std::string text =
      preamble() + hide(chain, depths, kExampleLines).text + question_text(chain) + "\n" + answer_prefix(chain);
  for (const std::string& variable : chain.variables) text += " " + variable;
  return text + "\n\n";
}

}  // namespace

Draft draft_variable_tracking(const std::string& task, const Source& source) {
  Random random = source.random(task);
  const std::string solved = example(random);
  const Chain chain(random);
  const GridDepths depths(random);

  Draft draft{task, task, source.index, solved + preamble()};
  Question question;
  question.text = question_text(chain);
  question.answer_prefix = answer_prefix(chain);
  question.references = chain.variables;
  question.answer_tokens = kAnswerTokens;
  for (size_t i = 0; i <= kHops; ++i) question.needles.push_back(i);
  draft.questions = {question};
  draft.min_units = kHops + 1;
  draft.max_units = source.options->length;
  draft.fill = [chain, depths](int lines) { return hide(chain, depths, lines); };
  return draft;
}

}  // namespace varve::eval
