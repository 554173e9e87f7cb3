#pragma once
// Prompt lookup: what followed the last n tokens the last time they occurred may follow again. Free, and right whenever
// an answer quotes what was read.

#include <memory>

#include "engine/speculation/drafter.h"

namespace varve::engine {

struct LookupOptions {
  int least_ngram = 2;  ///< tokens that must have occurred before
  int most_ngram = 4;   ///< a longer match is not preferred to a later one of this length
};

class PromptLookup final : public Drafter {
 public:
  static constexpr int kMostNgram = 64;
  /// kInvalidArgument: least_ngram below 1 or above most_ngram, most_ngram above kMostNgram.
  static Result<std::unique_ptr<PromptLookup>> create(const LookupOptions& options);

  const char* name() const override { return "lookup"; }
  Status begin(std::span<const int32_t>) override { return {}; }
  /// Continues the longest match, of equal ones the latest. A match that runs into the end of the history goes on with
  /// what it predicts itself, so repetition of any period is drafted to any length.
  Status draft(std::span<const int32_t> history, int most, Draft& draft) override;
  const char* reason() const override { return "no_match"; }

 private:
  explicit PromptLookup(const LookupOptions& options) : options_(options) {}
  const LookupOptions options_;
};

}  // namespace varve::engine
