#pragma once
// One arm at work: a text that is read once, and questions that branch off from it. Ours and libllama behind one
// interface, so that both are asked the same tokens in the same order.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/run/arms.h"
#include "model/model.h"
#include "varve/engine.h"

namespace varve::eval {

struct ArmOptions {
  int context_tokens = 0;  ///< most tokens of one session
  int chunk_tokens = 512;  ///< rows of one step
  int threads = 0;
  std::string kernel;
  std::string weight_gemm = "auto";
};

/// Bytes that an arm holds; of a peer, what its format needs for the tokens it holds.
struct ArmBytes {
  KvStats kv;
  size_t allocated_bytes = 0;  ///< of a peer: what libllama allocated for its whole context; ours: kv.physical_bytes
};

using Fallbacks = std::map<std::string, uint64_t>;

class Arm {
 public:
  virtual ~Arm() = default;

  /// Forgets everything, reads `tokens` and finishes the conversions that they made due. on_tokens: tokens since the
  /// last call; false cancels.
  virtual Status read(std::span<const int32_t> tokens, const std::function<bool(int)>& on_tokens) = 0;
  /// Forgets everything and takes over what `reference`, a dense arm of ours, has read: mode A. kUnsupported for a
  /// peer.
  virtual Status adopt(const Arm& reference) = 0;
  /// Reads on; rows: logits after each token, [tokens][vocabulary], or empty when not wanted.
  virtual Status step(std::span<const int32_t> tokens, bool want_rows, std::vector<float>& rows) = 0;

  /// A branch of what was read, with `question` (at least one token) after it; logits() are those of its last token.
  virtual Status ask(std::span<const int32_t> question) = 0;
  virtual std::span<const float> logits() const = 0;
  /// Appends a token to the branch.
  virtual Status say(int32_t token) = 0;
  /// Logits after each of `tokens` as if the branch went on with them; the branch stays as it is.
  virtual Status look_ahead(std::span<const int32_t> tokens, std::vector<float>& rows) = 0;
  /// Ends the branch.
  virtual Status end() = 0;

  virtual ArmBytes bytes() const = 0;
  /// Counted since the arm was made.
  virtual Fallbacks fallbacks() const = 0;
};

Result<std::unique_ptr<Arm>> make_arm(const std::shared_ptr<model::Model>& model, const ArmSpec& spec,
                                      const ArmOptions& options);

/// f16 bytes of keys and values of `tokens` tokens, windows applied.
size_t dense_kv_bytes(const model::ModelInfo& info, int64_t tokens);

}  // namespace varve::eval
