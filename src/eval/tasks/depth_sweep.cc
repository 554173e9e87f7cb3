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
  std::vector<double> depths;  // the middle of each twelfth
  for (int i = 0; i < kDepths; ++i) {
    const VaultCode vault(random, taken);
    needles.push_back(vault.sentence());
    depths.push_back((i + 0.5) / kDepths);
    Question question;
    question.tag = std::string("depth") + std::to_string(i);
    question.text = "\n\nWhat is the access code of the " + vault.name + " vault?";
    question.answer_prefix = "The access code of the " + vault.name + " vault is";
    question.references = {vault.code};
    question.answer_tokens = kAnswerTokens;
    question.needles = {static_cast<size_t>(i)};
    draft.questions.push_back(question);
  }
  hide_in_prose(draft, source, random, needles, depths, kDepths);
  return draft;
}

}  // namespace varve::eval
