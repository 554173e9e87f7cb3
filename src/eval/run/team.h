#pragma once
// The arms that work on one length, made when first needed, and the progress that all of them report to.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/run/arm.h"
#include "eval/run/plan.h"
#include "eval/run/store.h"

namespace varve::eval {

/// Tokens read and generated so far and in all; false cancels.
using EvalProgress = std::function<bool(const std::string& what, int64_t done, int64_t total)>;

class Team {
 public:
  Team(std::shared_ptr<model::Model> model, const EvalOptions& options, Store& store)
      : model_(std::move(model)), options_(options), store_(store) {}

  /// Lets go of all arms and sets the context of those made from now on.
  void start_length(int context_tokens);
  /// Arm i of the options.
  Result<Arm*> arm(size_t i);

  const model::Model& model() const { return *model_; }
  const EvalOptions& options() const { return options_; }
  const std::vector<ArmSpec>& specs() const { return options_.arms; }
  Store& store() { return store_; }
  size_t vocabulary() const { return static_cast<size_t>(model_->info().vocabulary); }

  void report_to(EvalProgress progress, int64_t total) {
    progress_ = std::move(progress);
    total_ = total;
  }
  void begin(std::string what) { what_ = std::move(what); }
  /// Counts tokens; kCancelled when the caller wants to stop.
  Status count(int64_t tokens);

  /// A record with what is known before the arm did anything.
  ItemRecord new_record(size_t arm) const;

 private:
  std::shared_ptr<model::Model> model_;
  const EvalOptions& options_;
  Store& store_;
  int context_tokens_ = 0;
  std::vector<std::unique_ptr<Arm>> arms_;
  EvalProgress progress_;
  std::string what_;
  int64_t done_ = 0, total_ = 0;
};

/// What `after` counts beyond `before`.
Fallbacks difference(const Fallbacks& after, const Fallbacks& before);

/// kInternal naming the arm when a divergence is not a number.
Status check_finite(const std::vector<TokenDivergence>& divergences, const std::string& arm);

}  // namespace varve::eval
