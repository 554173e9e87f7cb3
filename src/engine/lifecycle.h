#pragma once
// The bytes behind the lifecycle: headers of sealed pages, conversions on the executor's threads, and where a promoted
// page's fidelity comes from. Which page moves where is the controller's business (cache/lifecycle), which formats that
// means is the cache plan's.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/convert.h"
#include "base/memory.h"
#include "cache/lifecycle/controller.h"
#include "cache/lifecycle/policy.h"
#include "engine/cache_plan.h"
#include "engine/fidelity.h"
#include "engine/page_trace.h"
#include "engine/page_traits.h"
#include "kernels/cpu/kernels.h"
#include "model/executor.h"
#include "varve/engine.h"

namespace varve::engine {

class Lifecycle {
 public:
  /// What outlives the object.
  struct Parts {
    cache::Cache& cache;
    const CachePlan& plan;
    const kernels::Kernels& kernels;
    model::Executor& executor;
    const model::Model& model;
    TokensOf tokens_of;  ///< of the engine's sessions
    PageTrace* trace;    ///< null: nobody listens
  };
  /// kIoError when the file of restore = "disk" cannot be made.
  static Result<std::unique_ptr<Lifecycle>> create(const Parts& parts, const EngineOptions& options);
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
  /// What a unit of work converts of one layer: one KV head, or all of them where a tier is low-rank.
  struct LayerPart {
    int ordinal = 0;
    int first_head = 0;
    int heads = 0;
  };
  /// What one thread converts with.
  struct ThreadState {
    AlignedBuffer scratch;
    attention::BlockReader blocks;
  };
  /// A block that was made, by unit.
  struct BlockResult {
    bool made = false;
    int tokens = 0;
    double seconds = 0;
    format::BlockReport report;
  };

  Lifecycle(const Parts& parts, const Profile& profile);
  void plan_class(const ClassPlan& c, const Profile& profile);
  const attention::PageTurn* turn_of(const ClassPlan& c, size_t ordinal) const;
  bool reserve_threads();
  void convert(std::span<const cache::WorkUnit> units);
  BlockResult convert_unit(const cache::WorkUnit& unit, const format::TokenTraits* traits, ThreadState& thread);
  /// Traits of the unit's page when the unit makes a block, else null.
  const format::TokenTraits* traits_of(const cache::WorkUnit& unit);
  void count(const BlockResult& result);
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
  std::vector<std::vector<LayerPart>> parts_;  ///< [class][unit]
  std::map<const format::RotaryTable*, attention::PageTurn> turns_;  ///< of layers with un-rotated blocks
  std::unique_ptr<PageTraits> traits_;                               ///< null: no tier is low-rank
  std::vector<ThreadState> threads_;                                 ///< allocated at the first conversion
  size_t scratch_floats_per_thread_ = 0;
  int max_rank_ = 0, max_head_dim_ = 0;
  LowRankStats low_rank_;
  double seconds_ = 0, step_seconds_ = 0, worst_step_seconds_ = 0;  ///< in convert(); of the present step; its maximum
};

}  // namespace varve::engine
