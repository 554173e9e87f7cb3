#pragma once
// Values in host memory, one allocation each.

#include <map>

#include "base/memory.h"
#include "cache/store/page_store.h"

namespace varve::cache {

class MemoryStore final : public PageStore {
 public:
  explicit MemoryStore(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  Status put(uint64_t key, std::span<const uint8_t> bytes) override;
  Status get(uint64_t key, std::span<uint8_t> out) override;
  void erase(uint64_t key) override;
  size_t bytes() const override { return bytes_; }
  size_t allocated_bytes() const override { return bytes_; }
  const char* place() const override { return "host"; }
  StoreStats stats() const override { return stats_; }

 private:
  const size_t limit_bytes_;
  std::map<uint64_t, AlignedBuffer> values_;
  size_t bytes_ = 0;
  StoreStats stats_;
};

}  // namespace varve::cache
