#pragma once
// The bytes behind the lifecycle: headers of sealed pages, conversions on the executor's threads, and where a promoted
// page's fidelity comes from. Which page moves where is the controller's business (cache/lifecycle), which formats that
// means is the cache plan's.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "cache/lifecycle/controller.h"
#include "cache/lifecycle/policy.h"
#include "engine/cache_plan.h"
#include "engine/fidelity.h"
#include "engine/page_trace.h"
#include "kernels/cpu/kernels.h"
#include "model/executor.h"
#include "varve/engine.h"

namespace varve::engine {

class Lifecycle {
 public:
  /// The references outlive the object, and `trace` (null: nobody listens). kIoError when the file of restore = "disk"
  /// cannot be made.
  static Result<std::unique_ptr<Lifecycle>> create(cache::Cache& cache, const CachePlan& plan,
                                                   const EngineOptions& options, const kernels::Kernels& kernels,
                                                   model::Executor& executor, PageTrace* trace);
  ~Lifecycle();

  /// The headers of the pages that the last `added` of the sequence's tokens sealed.
  void write_headers(cache::SequenceId sequence, std::span<const int32_t> tokens, int added);
  /// After Cache::settle of `tokens` (all of the session's, the last `added` of them new): queues what the policy wants
  /// moved.
  void settled(cache::SequenceId session, int added);
  /// Mass of the pages of one class, by block, measured in the step before it settles.
  Status observe(cache::SequenceId session, size_t cls, std::span<const float> mass);
  Status mark(cache::SequenceId session, int begin, int end);
  /// The new session has the old one's scores and marks.
  void forked(cache::SequenceId from, cache::SequenceId to);
  /// After Cache::finish.
  void finished();
  /// Once per step, after every sequence settled: converts the step's share.
  void advance(int64_t step);
  /// A reservation lacks `bytes`: converts what may be converted now. Returns the bytes gained.
  size_t relieve(int64_t step, size_t bytes);

  /// Null when the profile recomputes nothing.
  Recompute* recompute() { return fidelity_ ? fidelity_->recompute() : nullptr; }
  /// Finishes what waits or is under way for the session.
  void flush(int64_t step, cache::SequenceId session);

  void report(EngineStats& stats) const;
  size_t scratch_bytes() const;
  /// Names the codec of every tier of every class: two engines with equal fingerprints store equal bytes.
  std::string fingerprint() const;

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
  std::unique_ptr<cache::Policy> policy_;
  std::unique_ptr<Fidelity> fidelity_;             ///< null when no class has an anchor tier
  std::unique_ptr<cache::Controller> controller_;  ///< null when no class has a second tier
  std::vector<std::array<uint64_t, cache::kTiers>> fingerprints_;
  AlignedBuffer scratch_;  ///< one part per thread, allocated at the first conversion
  size_t scratch_floats_per_thread_ = 0;
  double seconds_ = 0, step_seconds_ = 0, worst_step_seconds_ = 0;  ///< in convert(); of the present step; its maximum
};

}  // namespace varve::engine
