#include "cache/store/memory_store.h"

#include <cstring>
#include <string>
#include <utility>

namespace varve::cache {

Status MemoryStore::put(uint64_t key, std::span<const uint8_t> bytes) {
  erase(key);
  if (bytes.empty()) return invalid_argument("host store: a value without bytes");
  if (bytes.size() > limit_bytes_ - bytes_) {
    ++stats_.full;
    return resource_exhausted("host store: " + std::to_string(bytes.size()) + " bytes do not fit, " +
                              std::to_string(bytes_) + " of " + std::to_string(limit_bytes_) + " are used");
  }
  AlignedBuffer value(bytes.size());
  if (value.data() == nullptr) {
    ++stats_.write_errors;
    return resource_exhausted("host store: the system has no " + std::to_string(bytes.size()) + " bytes");
  }
  std::memcpy(value.data(), bytes.data(), bytes.size());
  values_.emplace(key, std::move(value));
  bytes_ += bytes.size();
  ++stats_.puts;
  return {};
}

Status MemoryStore::get(uint64_t key, std::span<uint8_t> out) {
  const auto it = values_.find(key);
  if (it == values_.end()) return not_found("host store: no value of key " + std::to_string(key));
  if (out.size() != it->second.size()) {
    return invalid_argument("host store: the value of key " + std::to_string(key) + " has " +
                            std::to_string(it->second.size()) + " bytes, not " + std::to_string(out.size()));
  }
  std::memcpy(out.data(), it->second.data(), out.size());
  ++stats_.gets;
  return {};
}

void MemoryStore::erase(uint64_t key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return;
  bytes_ -= it->second.size();
  values_.erase(it);
}

}  // namespace varve::cache
