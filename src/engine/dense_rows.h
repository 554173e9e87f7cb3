#pragma once
// Reads the keys and values of a dense session, as another engine over the same model takes them over.

#include <vector>

#include "cache/cache.h"
#include "engine/cache_plan.h"
#include "kernels/cpu/kernels.h"

namespace varve::engine {

class DenseRows {
 public:
  /// plan: of a dense profile. The references outlive the object, and nobody feeds or ends the sequence meanwhile.
  DenseRows(const CachePlan& plan, cache::Cache& cache, cache::SequenceId sequence, const kernels::Kernels& kernels)
      : plan_(plan), cache_(cache), sequence_(sequence), kernels_(kernels) {}

  /// Rows of positions [begin, end) of one model layer: k, v become [end - begin][kv_heads][head_dim]. Where a sliding
  /// window has let a row go, its key is NaN, which no page's centre counts, and its value zero.
  void read(int layer, int begin, int end, std::vector<float>& k, std::vector<float>& v) const;

 private:
  const CachePlan& plan_;
  cache::Cache& cache_;
  const cache::SequenceId sequence_;
  const kernels::Kernels& kernels_;
};

}  // namespace varve::engine
