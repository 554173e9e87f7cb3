#include <algorithm>
#include <set>

#include "eval/tasks/code.h"
#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"

namespace varve::eval {
namespace {

constexpr int kCodes = 4;
constexpr int kAnswerTokens = 128;
constexpr int kMinSentences = 10;  // a tenth of the haystack must be a sentence at least

/// Random depths in [0, 1], ascending and a tenth apart at least: what remains when the gaps are taken out is uniform.
std::vector<double> spread_depths(Random& random) {
  constexpr double kApart = 0.1;
  std::vector<double> depths;
  for (int i = 0; i < kCodes; ++i) depths.push_back(random.unit() * (1 - kApart * (kCodes - 1)));
  std::sort(depths.begin(), depths.end());
  for (int i = 0; i < kCodes; ++i) depths[static_cast<size_t>(i)] += kApart * i;
  return depths;
}

}  // namespace

Draft draft_multi_code(const std::string& task, const Source& source) {
  Random random = source.random(task);
  std::set<std::string> taken;
  Draft draft{task, task, source.index,
              "The following document mentions the access codes of several vaults. Read it and remember them.\n\n"};
  Question question;
  std::vector<std::string> needles;
  std::string names;
  for (int i = 0; i < kCodes; ++i) {
    const VaultCode vault(random, taken);
    needles.push_back(vault.sentence());
    question.references.push_back(vault.code);
    question.needles.push_back(static_cast<size_t>(i));
    names += (i == 0 ? "" : i + 1 == kCodes ? ", and " : ", ") + vault.name;
  }
  question.text = "\n\nWhat are the access codes of the vaults " + names + "?";
  question.answer_prefix = "The access codes of the vaults " + names + " are";
  question.answer_tokens = kAnswerTokens;
  draft.questions = {question};

  hide_in_prose(draft, source, random, needles, spread_depths(random), kMinSentences);
  return draft;
}

}  // namespace varve::eval
