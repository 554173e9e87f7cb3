#pragma once
// What a session under a profile allocates, by the engine's own accounting.

#include <cstdint>

#include "model/model.h"
#include "varve/profile.h"

namespace varve::eval {

class Price {
 public:
  /// scratch_bytes: codec and conversion buffers of an engine, which stats() counts among the physical bytes.
  Price(const model::ModelInfo& model, int length_tokens, size_t scratch_bytes)
      : model_(model), length_tokens_(length_tokens), scratch_bytes_(scratch_bytes) {}

  /// Physical bytes of one session of the length: the larger of what a run reports when its conversions have caught up
  /// (pages, strips and scratch) and what `varve inspect` and admission count (pages, strips and the page that is being
  /// converted).
  Result<size_t> physical_bytes(const Profile& profile) const;
  /// Bytes of the pages and strips alone: differences between stale formats show here, undisturbed by the rest.
  Result<size_t> page_bytes(const Profile& profile) const;
  /// The f16 cache of the same length, windows applied.
  size_t dense_bytes() const;
  int length_tokens() const { return length_tokens_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  const model::ModelInfo& model_;
  int length_tokens_;
  size_t scratch_bytes_;
};

}  // namespace varve::eval
