#pragma once
// Who guesses the next tokens. A guess costs a row of a step and nothing else: the answer does not depend on it.

#include <cstdint>
#include <span>
#include <vector>

#include "model/sampler.h"
#include "varve/status.h"

namespace varve::engine {

struct Draft {
  std::vector<int32_t> tokens;
  /// Entry i is what token i was drawn from. Empty: the tokens were chosen, not drawn.
  std::vector<std::vector<model::TokenProbability>> drawn_from;

  void clear() { resize(0); }
  void resize(size_t n) {
    if (tokens.size() > n) tokens.resize(n);
    if (drawn_from.size() > n) drawn_from.resize(n);
  }
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual const char* name() const = 0;  ///< "lookup", "draft"

  /// Before an answer: the tokens that the session holds.
  virtual Status begin(std::span<const int32_t> history) = 0;
  /// At most `most` tokens that may come after `history`; often fewer, or none. Calls need not continue the last one.
  virtual Status draft(std::span<const int32_t> history, int most, Draft& draft) = 0;
  /// Why the last draft() gave none: a word for the counters.
  virtual const char* reason() const = 0;
  /// Physical bytes of a KV cache of its own.
  virtual size_t kv_bytes() const { return 0; }
};

}  // namespace varve::engine
