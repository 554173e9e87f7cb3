#pragma once
// libllama decoding the same weights: what the dense profile's logits are compared with.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "varve/status.h"

struct llama_context;

namespace varve::testing {

class Oracle {
 public:
  struct Options {
    int context = 2048;     ///< tokens
    int micro_batch = 512;  ///< rows of one graph
    int threads = 2;
    bool flash_attention = false;
  };
  /// f16 KV cache. The model must outlive this.
  static Result<std::unique_ptr<Oracle>> create(const model::Model& model, const Options& options);
  ~Oracle();

  /// Appends tokens to the sequence; logits of the last one, [vocabulary].
  Result<std::vector<float>> feed(std::span<const int32_t> tokens);
  /// Forgets the sequence.
  void reset();

 private:
  struct Free {
    void operator()(llama_context* c) const;
  };
  Oracle() = default;
  std::unique_ptr<llama_context, Free> context_;
  int vocabulary_ = 0, past_ = 0;
};

/// Logits of a prompt's last token and of each continuation token but the last: [steps][vocabulary], steps =
/// continuation.size(). An empty continuation of `greedy` steps is decoded greedily and returned in it.
struct Decoded {
  std::vector<int32_t> continuation;
  std::vector<std::vector<float>> logits;
};
Result<Decoded> decode_greedy(Oracle& oracle, std::span<const int32_t> prompt, int steps);
Result<Decoded> decode_forced(Oracle& oracle, std::span<const int32_t> prompt, std::span<const int32_t> continuation);

}  // namespace varve::testing
