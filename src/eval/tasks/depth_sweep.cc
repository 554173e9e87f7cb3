#include <set>

#include "eval/tasks/code.h"
#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"

namespace varve::eval {
namespace {

constexpr int kDepths = 12;
constexpr int kAnswerTokens = 32;

}  // namespace

Draft draft_depth_sweep(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  Draft draft{task, task, source.index,
              "The following document mentions the access codes of several vaults. Read it and remember them.\n\n"};
  std::vector<std::string> needles;
  for (int i = 0; i < kDepths; ++i) {
    const VaultCode vault(random, taken);
    needles.push_back(vault.sentence());
    Question question;
    question.tag = std::string("depth") + std::to_string(i);
    question.text = "\n\nWhat is the access code of the " + vault.name + " vault?";
    question.answer_prefix = "The access code of the " + vault.name + " vault is";
    question.references = {vault.code};
    question.answer_tokens = kAnswerTokens;
    question.needles = {static_cast<size_t>(i)};
    draft.questions.push_back(question);
  }
  // The middle of each twelfth.
  const Placement place = [](int pieces) {
    std::vector<int> at;
    for (int i = 0; i < kDepths; ++i) at.push_back((2 * i + 1) * pieces / (2 * kDepths));
    return at;
  };
  hide_in_prose(draft, source, random, needles, place, kDepths);
  return draft;
}

}  // namespace varve::eval
