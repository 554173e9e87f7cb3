#include "eval/run/run_group.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "eval/run/compare.h"
#include "eval/tasks/score.h"
#include "model/text.h"

namespace varve::eval {
namespace {

/// What the dense arm did with one question: the rows that the others are compared with.
struct Reference {
  std::vector<float> first;  ///< after the prompt
  Tokens answer;             ///< the tokens that are fed: its own, or those of the text to copy or of the right choice
  std::vector<float> rows;   ///< after each of `answer` but the last
};

/// Tokens for look_ahead(): all but the last, which is only predicted.
std::span<const int32_t> all_but_last(const Tokens& tokens) {
  return std::span<const int32_t>(tokens).first(tokens.empty() ? 0 : tokens.size() - 1);
}

class GroupRun {
 public:
  GroupRun(Team& team, const Group& group, const Todo& todo) : team_(team), group_(group), todo_(todo) {}

  Status run() {
    team_.begin(group_.name);
    const size_t arms = team_.specs().size();
    arms_.assign(arms, nullptr);
    read_.resize(arms);
    for (size_t i = 0; i < arms; ++i) {
      if (i > 0 && todo_[i].empty()) continue;
      if (Status s = read(i); !s.ok()) return Status(s.code(), "arm " + team_.specs()[i].name + ": " + s.message());
    }
    for (size_t q = 0; q < group_.questions.size(); ++q) {
      if (std::ranges::none_of(todo_, [&](const auto& list) { return wants(list, q); })) continue;
      if (Status s = ask_all(q); !s.ok()) return s;
    }
    return {};
  }

 private:
  static bool wants(const std::vector<size_t>& list, size_t q) { return std::ranges::find(list, q) != list.end(); }

  struct Read {
    ArmBytes bytes;
    Fallbacks fallbacks;
    double seconds = 0;
  };

  Status read(size_t i) {
    const auto arm = team_.arm(i);
    if (!arm.ok()) return arm.status();
    arms_[i] = *arm;
    const Fallbacks before = (*arm)->fallbacks();
    const double started = now_s();
    const bool adopts = i > 0 && team_.options().mode == Mode::kA && team_.specs()[i].kind == ArmKind::kOurs;
    Status stopped;
    Status s = adopts ? (*arm)->adopt(*arms_[0]) : (*arm)->read(group_.shared, [&](int n) {
      stopped = team_.count(n);
      return stopped.ok();
    });
    if (s.ok() && adopts) s = team_.count(static_cast<int64_t>(group_.shared.size()));
    if (!s.ok()) return s;
    read_[i].seconds = now_s() - started;
    read_[i].bytes = (*arm)->bytes();
    read_[i].fallbacks = difference((*arm)->fallbacks(), before);
    return {};
  }

  Status ask_all(size_t q) {
    const ItemPrompt& question = group_.questions[q];
    ItemRecord dense;
    Reference reference;
    if (Status s = ask_reference(question, reference, dense); !s.ok()) return s;
    if (wants(todo_[0], q)) {
      if (Status s = team_.store().add(std::move(dense)); !s.ok()) return s;
    }
    for (size_t i = 1; i < arms_.size(); ++i) {
      if (!wants(todo_[i], q)) continue;
      ItemRecord record;
      if (Status s = ask(i, question, reference, record); !s.ok()) {
        return Status(s.code(), "arm " + team_.specs()[i].name + ": " + s.message());
      }
      if (Status s = team_.store().add(std::move(record)); !s.ok()) return s;
    }
    return {};
  }

  ItemRecord new_record(size_t i, const ItemPrompt& question) const {
    ItemRecord r = team_.new_record(i);
    r.id = question.item.id;
    r.task = question.item.task;
    r.group = question.item.group;
    r.length = question.item.length;
    r.prompt_sha256 = question.prompt_sha256;
    r.prompt_tokens = question.prompt_tokens;
    r.dropped_tokens = question.item.dropped_tokens;
    r.references = question.item.references;
    r.depths = question.item.depths;
    r.context_tokens = static_cast<int>(group_.shared.size());
    r.bytes = read_[i].bytes;
    return r;
  }

  void finish(ItemRecord& record, size_t i, const Fallbacks& before, double started) const {
    record.fallbacks = difference(arms_[i]->fallbacks(), before);
    for (const auto& [reason, count] : read_[i].fallbacks) record.fallbacks[reason] += count;
    record.seconds = now_s() - started + read_[i].seconds / double(group_.questions.size());
  }

  /// The dense arm answers, then asks itself again, so that its rows are made by the same steps as the others'.
  Status ask_reference(const ItemPrompt& question, Reference& reference, ItemRecord& record) {
    Arm& arm = *arms_[0];
    record = new_record(0, question);
    const Fallbacks before = arm.fallbacks();
    const double started = now_s();
    if (Status s = ask_branch(arm, question); !s.ok()) return s;
    reference.first.assign(arm.logits().begin(), arm.logits().end());
    if (Status s = answer(arm, question, record, reference.answer); !s.ok()) return s;
    if (Status s = arm.end(); !s.ok()) return s;
    if (reference.answer.size() > 1) {
      if (Status s = arm.ask(question.rest); !s.ok()) return s;
      if (Status s = arm.look_ahead(all_but_last(reference.answer), reference.rows); !s.ok()) return s;
      if (Status s = arm.end(); !s.ok()) return s;
    }
    finish(record, 0, before, started);
    return diverge(reference, reference.first, reference.rows, record);
  }

  Status ask(size_t i, const ItemPrompt& question, const Reference& reference, ItemRecord& record) {
    Arm& arm = *arms_[i];
    record = new_record(i, question);
    const Fallbacks before = arm.fallbacks();
    const double started = now_s();
    if (Status s = ask_branch(arm, question); !s.ok()) return s;
    std::vector<float> rows;
    if (Status s = arm.look_ahead(all_but_last(reference.answer), rows); !s.ok()) return s;
    if (Status s = diverge(reference, arm.logits(), rows, record); !s.ok()) return s;
    Tokens unused;
    if (Status s = answer(arm, question, record, unused); !s.ok()) return s;
    if (Status s = arm.end(); !s.ok()) return s;
    finish(record, i, before, started);
    return {};
  }

  Status ask_branch(Arm& arm, const ItemPrompt& question) {
    if (Status s = arm.ask(question.rest); !s.ok()) return s;
    return team_.count(static_cast<int64_t>(question.rest.size()));
  }

  Status diverge(const Reference& reference, std::span<const float> first, std::span<const float> rows,
                 ItemRecord& record) {
    if (reference.answer.empty()) return {};
    const int threads = team_.options().threads;
    const std::span<const int32_t> answer(reference.answer);
    auto all = compare_rows(reference.first, first, team_.vocabulary(), answer.first(1), threads);
    const auto later = compare_rows(reference.rows, rows, team_.vocabulary(), answer.subspan(1), threads);
    all.insert(all.end(), later.begin(), later.end());
    if (Status s = check_finite(all, record.arm); !s.ok()) return s;
    for (const TokenDivergence& t : all) record.divergence.add(t);
    return {};
  }

  /// Answers on the branch. forced: what the other arms are to be fed.
  Status answer(Arm& arm, const ItemPrompt& question, ItemRecord& record, Tokens& forced) {
    switch (question.item.scorer) {
      case Scorer::kChoice: return choose(arm, question, record, forced);
      case Scorer::kCopy: return copy(arm, question, record, forced);
      default: return generate(arm, question, record, forced);
    }
  }

  Status generate(Arm& arm, const ItemPrompt& question, ItemRecord& record, Tokens& forced) {
    const int most = std::max(question.item.answer_tokens, 1);
    Tokens tokens;
    while (static_cast<int>(tokens.size()) < most) {
      const int32_t token = greedy(arm.logits());
      if (forced.size() < kForcedTokens) forced.push_back(token);
      if (model::is_end_of_generation(team_.model(), token)) break;
      tokens.push_back(token);
      if (Status s = team_.count(1); !s.ok()) return s;
      if (static_cast<int>(tokens.size()) == most) break;
      if (Status s = arm.say(token); !s.ok()) return s;
    }
    // Answers end where they like: what was planned for the rest is done too.
    if (Status s = team_.count(most - static_cast<int64_t>(tokens.size())); !s.ok()) return s;
    auto text = model::detokenize(team_.model(), tokens, false);
    if (!text.ok()) return text.status();
    record.answer = std::move(*text);
    record.score = score(question.item, record.answer);
    return {};
  }

  /// Sum of log p of the tokens after what was asked.
  Result<double> log_p(Arm& arm, const Tokens& tokens) {
    std::vector<float> rows;
    if (Status s = arm.look_ahead(all_but_last(tokens), rows); !s.ok()) return s;
    double sum = log_probability(arm.logits(), tokens[0]);
    for (size_t i = 1; i < tokens.size(); ++i) {
      const std::span<const float> row(rows.data() + (i - 1) * team_.vocabulary(), team_.vocabulary());
      sum += log_probability(row, tokens[i]);
    }
    return sum;
  }

  Status choose(Arm& arm, const ItemPrompt& question, ItemRecord& record, Tokens& forced) {
    const Item& item = question.item;
    size_t best = 0;
    for (size_t c = 0; c < question.choices.size(); ++c) {
      const auto sum = log_p(arm, question.choices[c]);
      if (!sum.ok()) return sum.status();
      record.choice_log_p.push_back(*sum);
      if (*sum > record.choice_log_p[best]) best = c;
      if (item.choices[c] == item.references[0]) forced = {question.choices[c][0]};
    }
    record.answer = item.choices[best];
    record.score = score(item, record.answer);
    return {};
  }

  Status copy(Arm& arm, const ItemPrompt& question, ItemRecord& record, Tokens& forced) {
    const auto sum = log_p(arm, question.copy);
    if (!sum.ok()) return sum.status();
    record.score = std::exp(*sum / double(question.copy.size()));
    forced = question.copy;
    return {};
  }

  Team& team_;
  const Group& group_;
  const Todo& todo_;
  std::vector<Arm*> arms_;  ///< by index in the options; null where nothing is to do
  std::vector<Read> read_;
};

}  // namespace

Status run_group(Team& team, const Group& group, const Todo& todo) { return GroupRun(team, group, todo).run(); }

GroupWork group_work(const EvalOptions& options, const Group& group, const Todo& todo) {
  GroupWork work;
  std::vector<bool> asked(group.questions.size());
  for (const auto& list : todo) {
    for (const size_t q : list) asked[q] = true;
  }
  if (std::ranges::none_of(asked, [](bool a) { return a; })) return work;
  for (size_t i = 0; i < todo.size(); ++i) {
    if (i > 0 && todo[i].empty()) continue;
    int64_t& read = options.arms[i].chunk_tokens > 0 ? work.small_step_tokens : work.read_tokens;
    read += static_cast<int64_t>(group.shared.size());
    for (size_t q = 0; q < group.questions.size(); ++q) {
      const bool answers = i == 0 ? asked[q] : std::ranges::find(todo[i], q) != todo[i].end();
      if (!answers) continue;
      const ItemPrompt& question = group.questions[q];
      read += static_cast<int64_t>(question.rest.size());
      if (question.choices.empty() && question.copy.empty()) {
        work.generated_tokens += std::max(question.item.answer_tokens, 1);
      }
    }
  }
  return work;
}

}  // namespace varve::eval
