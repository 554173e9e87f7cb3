#pragma once
// The rows of `varve bench cpu` (docs/performance.md says what each one means): long-context speed on a processor,
// against libllama and ggml in the same process and run. Medians; what is compared takes turns.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/cpu/attention_case.h"
#include "eval/speed.h"

namespace varve::eval {

struct CpuBenchOptions {
  Profile profile;
  int threads = 0;
  std::string kernel;
  std::vector<AttentionShape> shapes;
  size_t rotate_bytes = size_t{1} << 30;  ///< caches of one contender together, at least
  std::vector<int> depths;                ///< of end-to-end decode; the first also of the sessions
  std::vector<int> growth;                ///< contexts of the growth rows; empty: none
  int screen_tokens = 2048;               ///< where the peer's settings are told apart
  int sessions = 4;
  int decode_tokens = 24;
  int rounds = 5;
  int kl_tokens = 4096;
  bool targets = true;  ///< compare with what is wanted at full size
  std::function<bool(const std::string& what, int done, int total)> progress;  ///< false cancels

  /// As docs/performance.md reports it, clipped to the model's context.
  static CpuBenchOptions full(const model::ModelInfo& model);
  /// Every row at sizes that mean nothing.
  static CpuBenchOptions quick(const model::ModelInfo& model);

  /// Tokens of text that the rows read.
  int text_tokens() const;
};

/// What all rows will take, from how long this model takes for a few tokens here.
Result<double> estimate_cpu_bench_s(const std::shared_ptr<model::Model>& model, const CpuBenchOptions& options);

/// Attention alone, no model.
Result<std::vector<BenchRow>> measure_attention(const CpuBenchOptions& options);
/// Decode, time to first token, sessions together, divergence.
Result<std::vector<BenchRow>> measure_long_context(const std::shared_ptr<model::Model>& model,
                                                   std::span<const int32_t> text, const CpuBenchOptions& options);
/// Decode time against context, and its slope.
Result<std::vector<BenchRow>> measure_growth(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                             const CpuBenchOptions& options);

}  // namespace varve::eval
