#pragma once
// Teacher-forced KL of profiles against the dense cache on a text, all arms in lockstep over the same weights, each arm
// attending over its own pages (what was read early is already compressed when later text is read).

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

inline constexpr int kFloorChunk = 4;

struct KlOptions {
  std::vector<Profile> arms;
  /// Adds an arm "floor": dense again in steps of kFloorChunk rows, whose attention sums in another order. ggml rounds
  /// activations to 8 bits, which turns any last-bit difference into a visible one: no arm can be told from dense
  /// below the KL of this one.
  bool floor = true;
  int chunk_tokens = 128;  ///< rows per step; 1 is token-by-token decode (no floor arm up to kFloorChunk)
  int skip_tokens = -1;    ///< first positions not compared; -1: a quarter of the text, at most 1,024
  int threads = 0;
  std::string kernel;
  /// Of every arm (EngineOptions). "ggml": one arithmetic for every step size, libllama's; "fp32" has no floor to speak
  /// of in steps of 64 tokens and more, over a model that was loaded without repacking.
  std::string weight_gemm = "ggml";
  std::function<bool(int done, int total)> progress;  ///< tokens; false cancels
};

struct KlArm {
  Profile profile;
  DivergenceSummary summary;
  EngineStats stats;   ///< at the end of the text
  double seconds = 0;  ///< of this arm's steps alone
};

struct KlReport {
  int tokens = 0;
  int skipped = 0;
  double dense_seconds = 0;
  std::vector<KlArm> arms;
};

/// tokens: at least 2. The reference is a `dense` engine of its own, so a `dense` arm is the A/A control.
Result<KlReport> measure_kl(const std::shared_ptr<model::Model>& model, std::span<const int32_t> tokens,
                            const KlOptions& options);

}  // namespace varve::eval
