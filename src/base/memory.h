#pragma once
// Aligned, zero-initialised byte buffers. All page and scratch memory comes from here.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace varve {

inline constexpr size_t kCacheLine = 64;

constexpr size_t align_up(size_t n, size_t a) { return (n + a - 1) / a * a; }

/// Owns `size()` zeroed bytes aligned to kCacheLine; buffers of 2 MiB and more are aligned to 2 MiB and ask
/// for huge pages. `data()` is null when the size is 0 or the system refused the memory.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);

  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  size_t size_ = 0;
};

}  // namespace varve
