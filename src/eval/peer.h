#pragma once
// The peer every comparison runs against: libllama itself, in this process, over the same weights.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "varve/status.h"

namespace varve::eval {

struct PeerOptions {
  int context_tokens = 0;
  int threads = 0;
  int sequences = 1;             ///< context_tokens each, in streams of their own as in llama-batched-bench
  int batch_tokens = 512;        ///< logical batch
  int micro_batch_tokens = 512;  ///< rows of one graph
  bool flash_attention = false;
  std::string kv_type = "f16";   ///< "f16", "q8_0", "q4_0"; quantised V needs flash attention
};

/// One libllama context with one sequence, or with several of the same length.
class Peer {
 public:
  static Result<Peer> create(std::shared_ptr<model::Model> model, const PeerOptions& options);
  Peer(Peer&&) noexcept;
  Peer& operator=(Peer&&) noexcept;
  ~Peer();

  /// Appends tokens; logits of the last one (all: of every one) are readable until the next call.
  Status feed(std::span<const int32_t> tokens, bool all_logits = false);
  /// All other sequences become copies of the first.
  void copy_first();
  /// One step that appends `token` to every sequence.
  Status feed_each(int32_t token);
  /// Row `index` of the last feed's logits (0 when only the last row was asked for), [vocabulary].
  std::span<const float> logits(int index = 0) const;
  /// Forgets tokens of every sequence from position `tokens` on.
  Status truncate(int tokens);
  int length() const;
  /// What libllama allocated for keys and values.
  size_t kv_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Peer();
};

}  // namespace varve::eval
