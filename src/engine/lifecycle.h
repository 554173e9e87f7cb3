#pragma once
// The bytes behind the lifecycle: headers of sealed pages, and conversions on the executor's threads. Which page moves
// where is the controller's business (cache/lifecycle), which formats that means is the cache plan's.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "cache/lifecycle/age_policy.h"
#include "cache/lifecycle/controller.h"
#include "engine/cache_plan.h"
#include "kernels/cpu/kernels.h"
#include "model/executor.h"
#include "varve/engine.h"

namespace varve::engine {

class Lifecycle {
 public:
  /// The references outlive the object.
  static Result<std::unique_ptr<Lifecycle>> create(cache::Cache& cache, const CachePlan& plan, const Profile& profile,
                                                   const kernels::Kernels& kernels, model::Executor& executor,
                                                   std::function<void(const Transition&)> on_transition);

  /// After Cache::settle of `tokens` (all of the sequence's, the last `added` of them new): writes the headers of pages
  /// that sealed and queues what the policy wants moved.
  void settled(cache::SequenceId sequence, std::span<const int32_t> tokens, int added);
  /// Once per step, after every sequence settled: converts the step's share.
  void advance(int64_t step);
  /// A reservation lacks `bytes`: converts what may be converted now. Returns the bytes gained.
  size_t relieve(int64_t step, size_t bytes);

  void report(EngineStats& stats) const;
  size_t scratch_bytes() const { return scratch_.size(); }

 private:
  Lifecycle(cache::Cache& cache, const CachePlan& plan, const Profile& profile, const kernels::Kernels& kernels,
            model::Executor& executor);
  void convert(std::span<const cache::WorkUnit> units);
  void convert_unit(const cache::WorkUnit& unit, float* scratch);
  uint64_t fingerprint(size_t cls, cache::Tier tier) const { return fingerprints_[cls][static_cast<size_t>(tier)]; }

  cache::Cache& cache_;
  const CachePlan& plan_;
  const kernels::Kernels& kernels_;
  model::Executor& executor_;
  const format::EncodeOptions encode_;
  const int convert_tokens_per_step_;
  cache::AgePolicy policy_;
  std::unique_ptr<cache::Controller> controller_;  ///< null when no class has a second tier
  std::vector<std::array<uint64_t, cache::kTiers>> fingerprints_;
  AlignedBuffer scratch_;  ///< one part per thread, allocated at the first conversion
  size_t scratch_floats_per_thread_ = 0;
};

}  // namespace varve::engine
