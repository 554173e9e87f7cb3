#pragma once
// Picks the next token from logits, by libllama's samplers. One Sampler per sequence: it remembers what it accepted.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/grammar.h"
#include "model/model.h"
#include "varve/status.h"

namespace varve::model {

struct SamplerOptions {
  float temperature = 0;    ///< 0: greedy; the lowest id wins ties
  int top_k = 0;            ///< 0: off
  float top_p = 1;          ///< 1: off
  float min_p = 0;          ///< 0: off
  int penalty_tokens = 64;  ///< how many accepted tokens the penalties look at; 0: none
  float repeat_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  uint32_t seed = 0;  ///< 0xffffffff is libllama's word for a random one and is refused
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  GrammarSpec grammar = {};
};

struct TokenProbability {
  int32_t token = 0;
  float probability = 0;
};

class Sampler {
 public:
  /// kInvalidArgument names the option out of bounds.
  static Result<std::unique_ptr<Sampler>> create(std::shared_ptr<const Model> model, const SamplerOptions& options);
  ~Sampler();

  /// The next token. logits: [vocabulary]. A NaN or +infinity among them, or none that is finite, is kInternal; a
  /// grammar that allows nothing is kInvalidArgument. Changes the random state, not the history.
  Result<int32_t> sample(std::span<const float> logits);
  /// What sample() draws from: every token that it may return with its probability, ascending tokens, sum 1. Greedy:
  /// one token. Errors as sample(). Changes nothing.
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits);
  /// The next number of a random sequence of its own, uniform in [0, 1), that sample() neither uses nor moves.
  double uniform();
  /// Tells penalties and grammar which token was taken. Tokens of a prompt may be given with `generated` false: they
  /// count for penalties only.
  Status accept(int32_t token, bool generated = true);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Sampler();
};

}  // namespace varve::model
