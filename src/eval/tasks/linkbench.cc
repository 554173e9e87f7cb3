#include <set>

#include "eval/tasks/generators.h"
#include "eval/tasks/prose.h"
#include "eval/tasks/words.h"

namespace varve::eval {
namespace {

constexpr int kChains = 16;
constexpr int kAnswerTokens = 24;

/// Both tasks are about the same haystack.
constexpr const char* kHaystack = "linkbench";

/// Depths of kChains needles, evenly over a twelfth to either side of `centre`, in random order.
std::vector<double> depths_around(double centre, Random& random) {
  std::vector<double> depths;
  for (const size_t slot : random.sample(kChains, kChains))
    depths.push_back(centre + ((double(slot) + 0.5) / kChains - 0.5) / 6);
  return depths;
}

}  // namespace

Draft draft_linkbench(const std::string& task, bool chain, const Source& source) {
  Random random = source.random(kHaystack);
  const std::vector<size_t> first = random.sample(given_names().size(), kChains),
                            last = random.sample(surnames().size(), kChains),
                            institute = random.sample(institutes().size(), kChains),
                            city = random.sample(cities().size(), kChains);
  Draft draft{task, kHaystack, source.index,
              "The following document says where some people work and where those institutes are. Read it and remember "
              "both.\n\n"};
  std::vector<std::string> works, located, candidates;
  for (size_t i = 0; i < kChains; ++i) candidates.push_back(cities()[city[i]]);
  std::vector<Question> direct, chained;
  for (size_t i = 0; i < kChains; ++i) {
    const std::string person = given_names()[first[i]] + " " + surnames()[last[i]];
    const std::string where = institutes()[institute[i]] + " Institute";
    works.push_back(person + " works at the " + where + ". ");
    located.push_back("The " + where + " is located in " + candidates[i] + ". ");

    Question question;
    question.tag = std::to_string(i);
    question.references = {candidates[i]};
    question.choices = candidates;
    question.answer_tokens = kAnswerTokens;
    question.scorer = Scorer::kFirstCandidate;
    question.text = "\n\nIn which city is the " + where + " located?";
    question.answer_prefix = "The " + where + " is located in";
    question.needles = {kChains + i};
    direct.push_back(question);
    question.text = "\n\nIn which city does " + person + " work?";
    question.answer_prefix = person + " works in";
    question.needles = {i, kChains + i};
    chained.push_back(question);
  }
  draft.questions = chain ? chained : direct;
  for (const std::vector<Question>* asked : {&direct, &chained})  // the haystack must not depend on what is asked
    for (const Question& question : *asked)
      draft.reserve_tokens = std::max(draft.reserve_tokens, tokens_beside(question, source.options->count_tokens));

  std::vector<std::string> needles = works;
  needles.insert(needles.end(), located.begin(), located.end());
  std::vector<double> depths = depths_around(1.0 / 3, random);
  const std::vector<double> second = depths_around(2.0 / 3, random);
  depths.insert(depths.end(), second.begin(), second.end());
  hide_in_prose(draft, source, random, needles, depths, 0);
  return draft;
}

}  // namespace varve::eval
