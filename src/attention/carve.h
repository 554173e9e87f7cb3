#pragma once
// Several typed arrays in one aligned buffer that grows only.

#include <cstddef>
#include <cstdint>

#include "base/memory.h"

namespace varve::attention {

/// Hands out consecutive cache-line aligned pieces; with no base it only counts.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <typename T>
  T* take(size_t n) {
    const size_t at = used_;
    used_ += align_up(n * sizeof(T), kCacheLine);
    return base_ != nullptr ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

/// Carves twice: once to count, once for real when the buffer had to grow. False when memory was refused.
template <typename Carve>
bool fit(AlignedBuffer* buffer, const Carve& carve) {
  Carver count(nullptr);
  carve(count);
  if (count.used() > buffer->size()) {
    *buffer = AlignedBuffer(count.used());
    if (buffer->data() == nullptr) return false;
  }
  Carver real(buffer->data());
  carve(real);
  return true;
}

}  // namespace varve::attention
