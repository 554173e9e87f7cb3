#pragma once
// Something that reads and continues a text, ours or libllama; each measurement starts from the same state.

#include <memory>
#include <span>
#include <string>

#include "eval/peer.h"
#include "varve/engine.h"

namespace varve::eval {

class Contender {
 public:
  virtual ~Contender() = default;
  /// Every sequence reads `tokens`, from empty. Only the first one is read where copying it is as good.
  virtual Status prefill(std::span<const int32_t> tokens) = 0;
  /// A single sequence reads on from what prefill() left.
  virtual Status extend(std::span<const int32_t> tokens) = 0;
  virtual Status begin() = 0;                ///< a copy of the prefilled state, not timed
  virtual Status decode(int32_t token) = 0;  ///< one step: `token` for every sequence
  virtual Status end() = 0;
};

/// Waits until the idle threads of libllama's pool, which spin for a while, are asleep: the next contender must not pay
/// for them.
void let_threads_sleep();

/// Seconds that `tokens` steps take from what prefill() left.
Result<double> timed_decode(Contender& contender, std::span<const int32_t> tokens);

struct OurContenderOptions {
  Profile profile;
  int threads = 0;
  std::string kernel;
  int sequences = 1;  ///< each with pages of its own
};
Result<std::unique_ptr<Contender>> our_contender(const std::shared_ptr<model::Model>& model,
                                                 const OurContenderOptions& options);
Result<std::unique_ptr<Contender>> peer_contender(const std::shared_ptr<model::Model>& model,
                                                  const PeerOptions& options);

}  // namespace varve::eval
