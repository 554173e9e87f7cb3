#include "support/step_runner.h"

#include <algorithm>

namespace varve::testing {

Result<std::vector<float>> StepRunner::feed(std::span<const int32_t> tokens, bool wanted) {
  std::vector<int32_t> positions, rows;
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(past_ + static_cast<int>(i));
  if (wanted) rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
  std::vector<float> logits(wanted ? static_cast<size_t>(info_.vocabulary) : 0);
  attention_.begin_step(past_, static_cast<int>(tokens.size()));
  if (Status s = executor_.run({tokens, positions, rows}, attention_, logits); !s.ok()) return s;
  past_ += static_cast<int>(tokens.size());
  return logits;
}

Result<std::vector<std::vector<float>>> run_forced(model::Executor& executor, const model::ModelInfo& info,
                                                   std::span<const int32_t> prompt,
                                                   std::span<const int32_t> continuation, size_t chunk) {
  StepRunner runner(executor, info, static_cast<int>(prompt.size() + continuation.size()));
  std::vector<std::vector<float>> all;
  for (size_t i = 0; i < prompt.size(); i += chunk) {
    const size_t n = std::min(chunk, prompt.size() - i);
    const bool last = i + n == prompt.size();
    Result<std::vector<float>> logits = runner.feed(prompt.subspan(i, n), last);
    if (!logits.ok()) return logits.status();
    if (last) all.push_back(std::move(logits).value());
  }
  for (size_t i = 0; i + 1 < continuation.size(); ++i) {
    Result<std::vector<float>> logits = runner.feed(continuation.subspan(i, 1));
    if (!logits.ok()) return logits.status();
    all.push_back(std::move(logits).value());
  }
  return all;
}

}  // namespace varve::testing
