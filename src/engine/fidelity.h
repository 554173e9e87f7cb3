#pragma once
// Where the fidelity of a promoted page comes from: what was kept at its demotion, else its tokens read again.

#include <memory>
#include <set>
#include <string>

#include "cache/lifecycle/fidelity.h"
#include "cache/store/stored_refinements.h"
#include "engine/recompute.h"
#include "varve/engine.h"

namespace varve::engine {

class Fidelity final : public cache::FidelitySource {
 public:
  /// By the profile's scoring.restore. kIoError when a file cannot be made in refinement_dir.
  static Result<std::unique_ptr<Fidelity>> create(cache::Cache& cache, const EngineOptions& options);

  bool keep(size_t cls, cache::PageId page, cache::Tier tier, const uint8_t* slot, size_t bytes) override;
  State ask(cache::SequenceId session, size_t cls, cache::PageId page, int start) override;
  Bytes bytes(size_t cls, cache::PageId page) override;
  void done(size_t cls, cache::PageId page) override;
  void relieve() override;
  void forget(cache::PageId page) override;

  ~Fidelity() override;

  Recompute* recompute() { return recompute_.get(); }
  const cache::StoredRefinements* kept() const { return kept_.get(); }

 private:
  std::unique_ptr<cache::PageStore> store_;
  std::unique_ptr<cache::StoredRefinements> kept_;  ///< null unless restore is host or disk
  std::unique_ptr<Recompute> recompute_;            ///< null when restore is none
  std::set<cache::PageId> recomputing_;             ///< asked of recompute_, until done()
};

}  // namespace varve::engine
