#include "eval/run/plan.h"

#include <algorithm>
#include <map>

#include "eval/run/record.h"
#include "eval/tasks/loaders.h"
#include "eval/tasks/tasks.h"
#include "model/text.h"

namespace varve::eval {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  return list;
}

/// The tasks asked for, in the suite's order.
Result<std::vector<std::string>> choose_tasks(const EvalOptions& options) {
  const auto known = task_names(options.suite);
  if (!known.ok()) return known.status();
  if (options.tasks.empty()) return *known;
  for (const std::string& task : options.tasks) {
    if (std::ranges::find(*known, task) == known->end()) {
      return invalid_argument("no task \"" + task + "\" in suite " + options.suite + " (known: " + join(*known) + ")");
    }
  }
  std::vector<std::string> chosen;
  for (const std::string& task : *known) {
    if (std::ranges::find(options.tasks, task) != options.tasks.end()) chosen.push_back(task);
  }
  return chosen;
}

Result<std::vector<Item>> load_items(const EvalOptions& options, int length, const LoadOptions& load) {
  auto items = [&]() -> Result<std::vector<Item>> {
    if (options.suite == "docmcq") return load_longbench_v2(options.data, load);
    if (options.suite == kLongBenchSuite) return load_longbench_v1(options.data, load);
    if (options.suite != "ruler") {
      return invalid_argument("suite " + options.suite + " reads no --data file (docmcq, longbench and ruler do)");
    }
    if (options.tasks.size() != 1) {
      return invalid_argument("a RULER file is of one task: name it with --tasks, e.g. --tasks qa_2");
    }
    return load_ruler(options.data, options.tasks[0], load);
  }();
  if (items.ok()) {
    for (Item& item : *items) item.length = length;
  }
  return items;
}

Result<std::vector<Item>> generate_items(const EvalOptions& options, const TaskOptions& task_options) {
  const auto tasks = choose_tasks(options);
  if (!tasks.ok()) return tasks.status();
  std::vector<Item> all;
  for (const std::string& task : *tasks) {
    auto items = make_items(options.suite, task, task_options);
    if (!items.ok()) return Status(items.status().code(), "task " + task + ": " + items.status().message());
    std::ranges::move(*items, std::back_inserter(all));
  }
  return all;
}

Result<ItemPrompt> make_question(const PromptMaker& prompts, Item item, const Tokens& prompt, size_t shared) {
  ItemPrompt q;
  q.rest.assign(prompt.begin() + std::ptrdiff_t(shared), prompt.end());
  q.prompt_sha256 = hash_tokens(prompt);
  q.prompt_tokens = static_cast<int>(prompt.size());
  if (item.scorer == Scorer::kChoice) {
    for (const std::string& choice : item.choices) {
      auto tokens = prompts.continuation(item, prompt, choice);
      if (!tokens.ok()) return tokens.status();
      if (tokens->empty()) return invalid_argument(item.id + ": a choice without a token");
      q.choices.push_back(std::move(*tokens));
    }
    if (q.choices.empty() || item.references.empty()) return invalid_argument(item.id + " has no choices");
  } else if (item.scorer == Scorer::kCopy) {
    if (item.references.empty()) return invalid_argument(item.id + " has nothing to copy");
    auto tokens = prompts.continuation(item, prompt, item.references[0]);
    if (!tokens.ok()) return tokens.status();
    if (tokens->empty()) return invalid_argument(item.id + " has nothing to copy");
    q.copy = std::move(*tokens);
  }
  q.item = std::move(item);
  return q;
}

/// Most tokens of prompt and answer.
size_t whole_length(const ItemPrompt& q, size_t shared) {
  size_t answer = std::max(q.copy.size(), static_cast<size_t>(std::max(q.item.answer_tokens, 0)));
  for (const Tokens& c : q.choices) answer = std::max(answer, c.size());
  return shared + q.rest.size() + answer;
}

Result<Group> make_group(const model::Model& model, const PromptMaker& prompts, std::vector<Item> items) {
  Group group;
  group.name = items[0].group;
  group.length = items[0].length;
  std::vector<Tokens> all;
  for (const Item& item : items) {
    auto prompt = prompts.prompt(item);
    if (!prompt.ok()) return prompt.status();
    all.push_back(std::move(*prompt));
  }
  // One more prompt, so that a lone question has a context of its own too.
  auto other = prompts.other_prompt(items[0]);
  if (!other.ok()) return other.status();
  all.push_back(std::move(*other));
  size_t shared = common_prefix(all);
  for (const Tokens& prompt : all) shared = std::min(shared, prompt.size() - 1);
  group.shared.assign(all[0].begin(), all[0].begin() + std::ptrdiff_t(shared));
  for (size_t i = 0; i < items.size(); ++i) {
    auto question = make_question(prompts, std::move(items[i]), all[i], shared);
    if (!question.ok()) return question.status();
    const size_t tokens = whole_length(*question, shared);
    if (tokens > static_cast<size_t>(model.info().context_train)) {
      return context_overflow(question->item.id + " takes " + std::to_string(tokens) +
                              " tokens with its answer; the model's context is " +
                              std::to_string(model.info().context_train));
    }
    group.tokens = std::max(group.tokens, static_cast<int>(tokens));
    group.questions.push_back(std::move(*question));
  }
  return group;
}

Status plan_tasks(const model::Model& model, const EvalOptions& options, int length, Plan& plan) {
  const auto prompts = PromptMaker::create(model);
  if (!prompts.ok()) return prompts.status();
  const auto template_tokens = (*prompts)->template_tokens();
  if (!template_tokens.ok()) return template_tokens.status();
  const CountTokens count = [&model](std::string_view text) {
    const auto tokens = model::tokenize(model, text, false, false);
    return tokens.ok() ? static_cast<int>(tokens->size()) : 0;
  };
  auto items = options.data.empty() ? generate_items(options, {.documents = options.documents,
                                                               .count_tokens = count,
                                                               .length = length,
                                                               .template_tokens = *template_tokens,
                                                               .n = options.n,
                                                               .seed = options.seed})
                                    : load_items(options, length,
                                                 {.count_tokens = count,
                                                  .length = length,
                                                  .template_tokens = *template_tokens,
                                                  .n = options.n,
                                                  .by_likelihood = options.suite == "docmcq"});
  if (!items.ok()) return items.status();
  std::vector<std::string> order;
  std::map<std::string, std::vector<Item>> by_group;
  for (Item& item : *items) {
    // The same name with another context would read one and ask about the other.
    std::string key = item.group + '\n' + item.context;
    if (!by_group.contains(key)) order.push_back(key);
    by_group[std::move(key)].push_back(std::move(item));
  }
  for (const std::string& key : order) {
    auto group = make_group(model, **prompts, std::move(by_group[key]));
    if (!group.ok()) return group.status();
    plan.groups.push_back(std::move(*group));
  }
  return {};
}

}  // namespace

const char* mode_name(Mode mode) { return mode == Mode::kA ? "A" : "B"; }

std::vector<std::string> eval_suites() {
  std::vector<std::string> names = {kKldSuite};
  std::ranges::copy(suite_names(), std::back_inserter(names));
  names.push_back(kLongBenchSuite);
  return names;
}

Result<Plan> make_plan(const model::Model& model, const EvalOptions& options) {
  const auto suites = eval_suites();
  if (std::ranges::find(suites, options.suite) == suites.end()) {
    return invalid_argument("no suite \"" + options.suite + "\" (known: " + join(suites) + ")");
  }
  if (options.n < 1) return invalid_argument("n is " + std::to_string(options.n) + "; it must be at least 1");
  if (options.lengths.empty()) return invalid_argument("no length is given");
  if (options.is_kld() && !options.tasks.empty()) return invalid_argument("suite kld has no tasks");
  if (options.suite == kLongBenchSuite && options.data.empty()) {
    return invalid_argument("suite longbench needs --data FILE, a LongBench jsonl");
  }
  const int context = model.info().context_train;
  Plan plan;
  for (const int length : options.lengths) {
    if (length > context) {
      return context_overflow("a length of " + std::to_string(length) + " tokens; the model's context is " +
                              std::to_string(context));
    }
    if (!options.is_kld()) {
      if (Status s = plan_tasks(model, options, length, plan); !s.ok()) return s;
      continue;
    }
    if (length < 16)
      return invalid_argument("a length of " + std::to_string(length) + " tokens; kld needs at least 16");
    if (options.documents.empty()) return invalid_argument("kld needs a text: give --text FILE");
    auto slices = make_slices(model, options.documents, length, options.n, options.seed);
    if (!slices.ok()) return slices.status();
    std::ranges::move(*slices, std::back_inserter(plan.slices));
  }
  return plan;
}

}  // namespace varve::eval
