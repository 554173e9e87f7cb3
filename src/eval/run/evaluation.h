#pragma once
// An evaluation from its options to its records: what is done already, how long the rest will take, and doing it.

#include <memory>
#include <string>

#include "eval/run/plan.h"
#include "eval/run/run_group.h"
#include "eval/run/store.h"
#include "eval/run/team.h"

namespace varve::eval {

/// What is left to do.
struct Remaining {
  int64_t pairs = 0, done_pairs = 0;  ///< (item, arm); done_pairs were found in the directory
  int64_t read_tokens = 0;            ///< over all arms
  int64_t small_step_tokens = 0;      ///< read by arms with a small step of their own
  int64_t generated_tokens = 0;       ///< at most
  double mean_context = 0;            ///< of the tokens read
  int64_t tokens() const { return read_tokens + small_step_tokens + generated_tokens; }
};

class Evaluation {
 public:
  /// Plans, checks every arm and opens the directory; errors as Engine::create(), make_plan() and Store::open().
  /// kInvalidArgument with both digests for a profile that was calibrated for another model.
  static Result<std::unique_ptr<Evaluation>> prepare(std::shared_ptr<model::Model> model, EvalOptions options,
                                                     const std::string& directory);

  Remaining remaining() const;
  /// Seconds that the rest will take, from the speed at which the dense arm reads and generates a few tokens and the
  /// growth of attention with the context. 0 when nothing is left.
  Result<double> estimate_s() const;
  /// Does the rest. kCancelled when `progress` says so: what is done stays.
  Status run(const EvalProgress& progress);

  /// (item, arm) pairs that are not in the directory yet; also right after a run that was cancelled.
  int64_t left() const;

  const Store& store() const { return store_; }
  const EvalOptions& options() const { return options_; }
  const model::Model& model() const { return *model_; }

 private:
  Evaluation(std::shared_ptr<model::Model> model, EvalOptions options, Plan plan, Store store)
      : model_(std::move(model)), options_(std::move(options)), plan_(std::move(plan)), store_(std::move(store)) {}
  Status find_todo();

  std::shared_ptr<model::Model> model_;
  EvalOptions options_;
  Plan plan_;
  Store store_;
  std::vector<Todo> group_todo_;                 ///< by group
  std::vector<std::vector<size_t>> slice_todo_;  ///< by slice: arms
};

/// What must be the same for two runs to share a directory. Arms, lengths, tasks and n may grow.
Result<nlohmann::ordered_json> run_identity(const model::Model& model, const EvalOptions& options);

}  // namespace varve::eval
