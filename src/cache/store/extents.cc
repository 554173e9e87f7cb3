#include "cache/store/extents.h"

#include <algorithm>
#include <iterator>

namespace varve::cache {

std::optional<size_t> Extents::take(size_t bytes) {
  const auto fit = std::find_if(free_.begin(), free_.end(), [&](const auto& e) { return e.second >= bytes; });
  if (fit != free_.end()) {
    const auto [offset, size] = *fit;
    free_.erase(fit);
    if (size > bytes) free_.emplace(offset + bytes, size - bytes);
    return offset;
  }
  if (bytes > limit_bytes_ - end_) return std::nullopt;
  const size_t offset = end_;
  end_ += bytes;
  return offset;
}

void Extents::give(size_t offset, size_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (offset + bytes == end_) {
    end_ = offset;
  } else {
    free_.emplace(offset, bytes);
  }
}

}  // namespace varve::cache
