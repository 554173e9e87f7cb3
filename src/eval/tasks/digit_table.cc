#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kRows = 60;
constexpr int kAnswerTokens = 16;
constexpr int kDepartments = 9;

}  // namespace

Draft draft_digit_table(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  Draft draft{task, task, source.index,
              "The lines of a ledger are scattered over the following document. Read it and remember them.\n\n"};
  std::vector<std::string> needles;
  std::vector<double> depths;  // each anywhere in its sixtieth
  for (int row = 0; row < kRows; ++row) {
    const std::string entry = "QX-" + new_number(random, 4, taken), credits = new_number(random, 4, taken);
    needles.push_back("\nLEDGER ENTRY " + entry + ": department " + std::to_string(random.between(1, kDepartments)) +
                      ", allocation " + credits + " credits.\n");
    depths.push_back((row + random.unit()) / kRows);
    Question question;
    question.tag = entry;
    question.text = "\n\nHow many credits are the allocation of ledger entry " + entry + "?";
    question.answer_prefix = "The allocation of ledger entry " + entry + " is";
    question.references = {credits};
    question.answer_tokens = kAnswerTokens;
    question.needles = {static_cast<size_t>(row)};
    draft.questions.push_back(question);
  }
  hide_in_prose(draft, source, random, needles, depths, 0);
  return draft;
}

}  // namespace varve::eval
