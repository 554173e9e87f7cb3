#pragma once
// Task suites: a context is read once by every arm, and each question about it runs on a branch.

#include "eval/run/team.h"

namespace varve::eval {

/// Most tokens of the dense arm's answer that are fed to the others to see how far they are from it.
inline constexpr size_t kForcedTokens = 32;

/// For every arm of the options, the questions of a group (by index) that it has yet to answer.
using Todo = std::vector<std::vector<size_t>>;

/// Asks what is in `todo` and stores the records, question by question. The dense arm answers every question that some
/// arm must answer.
Status run_group(Team& team, const Group& group, const Todo& todo);

struct GroupWork {
  int64_t read_tokens = 0, small_step_tokens = 0;  ///< the latter: read by arms with a small step of their own
  int64_t generated_tokens = 0;                    ///< at most
};
GroupWork group_work(const EvalOptions& options, const Group& group, const Todo& todo);

}  // namespace varve::eval
