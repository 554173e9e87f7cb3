#pragma once
// Which parts of a file are in use: first fit, neighbours joined, the end given back.

#include <cstddef>
#include <map>
#include <optional>

namespace varve::cache {

class Extents {
 public:
  explicit Extents(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  /// Offset of `bytes` (at least 1) free bytes; nothing when they would lie beyond the limit.
  std::optional<size_t> take(size_t bytes);
  /// What take(bytes) gave.
  void give(size_t offset, size_t bytes);
  size_t end() const { return end_; }  ///< all extents in use lie below

 private:
  const size_t limit_bytes_;
  std::map<size_t, size_t> free_;  ///< offset to bytes, below end_, none touching another or end_
  size_t end_ = 0;
};

}  // namespace varve::cache
