#pragma once
// Drafts by a second, smaller model over the same vocabulary, with a cache of its own.

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "engine/speculation/drafter.h"
#include "varve/engine.h"

namespace varve::engine {

class ModelDrafter final : public Drafter {
 public:
  /// engine: of the draft model. target: whose tokens are drafted. sampling: as the answer is sampled: greedy answers
  /// get greedy drafts, others draws from the draft model's distribution at the same temperature and truncation
  /// (penalties, biases and grammars stay the answer's business). proceed: asked while a prompt is read; false cancels
  /// (kCancelled). kInvalidArgument when the vocabularies differ.
  static Result<std::unique_ptr<ModelDrafter>> create(std::unique_ptr<Engine> engine, const model::Model& target,
                                                      const model::SamplerOptions& sampling,
                                                      std::function<bool()> proceed = {});

  const char* name() const override { return "draft"; }
  Status begin(std::span<const int32_t> history) override;
  Status draft(std::span<const int32_t> history, int most, Draft& draft) override;
  const char* reason() const override { return reason_; }
  size_t kv_bytes() const override { return engine_->stats().kv.physical_bytes; }

 private:
  ModelDrafter(std::unique_ptr<Engine> engine, std::unique_ptr<model::Sampler> sampler, bool greedy, uint32_t seed,
               std::function<bool()> proceed);
  /// Makes the session hold exactly `history`, from what it holds of it. logits: after its last token, if `wanted`.
  Status follow(std::span<const int32_t> history, Logits wanted, std::vector<float>& logits);

  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<model::Sampler> sampler_;
  const bool greedy_;
  const std::function<bool()> proceed_;
  std::mt19937_64 random_;
  SessionId session_ = 0;  ///< 0: none yet
  const char* reason_ = "context";
};

}  // namespace varve::engine
