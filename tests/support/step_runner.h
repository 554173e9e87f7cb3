#pragma once
// Feeds an executor one sequence, step by step, over the naive attention.

#include <cstdint>
#include <span>
#include <vector>

#include "model/executor.h"
#include "support/naive_attention.h"

namespace varve::testing {

class StepRunner {
 public:
  StepRunner(model::Executor& executor, const model::ModelInfo& info, int capacity)
      : executor_(executor), info_(info), attention_(info, capacity) {}

  /// Logits of the last token, [vocabulary]; empty unless `wanted`.
  Result<std::vector<float>> feed(std::span<const int32_t> tokens, bool wanted = true);
  int past() const { return past_; }

 private:
  model::Executor& executor_;
  const model::ModelInfo& info_;
  NaiveAttention attention_;
  int past_ = 0;
};

/// Logits of the prompt's last token and of each continuation token but the last, the prompt fed in chunks.
Result<std::vector<std::vector<float>>> run_forced(model::Executor& executor, const model::ModelInfo& info,
                                                   std::span<const int32_t> prompt,
                                                   std::span<const int32_t> continuation, size_t chunk);

}  // namespace varve::testing
