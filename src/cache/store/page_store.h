#pragma once
// Bytes of pages that rest outside the pools, in a place cheaper than theirs.

#include <cstddef>
#include <cstdint>
#include <span>

#include "varve/status.h"

namespace varve::cache {

struct StoreStats {
  uint64_t puts = 0;          ///< values stored
  uint64_t gets = 0;          ///< values returned whole
  uint64_t full = 0;          ///< values refused because of the byte limit
  uint64_t write_errors = 0;  ///< values refused because the write failed or came up short
  uint64_t read_errors = 0;   ///< the read failed or came up short
  uint64_t corrupt = 0;       ///< the value did not have its checksum
};

/// One value per key. Whatever goes wrong is a Status and a counter; the caller treats it as a miss. One thread.
class PageStore {
 public:
  virtual ~PageStore() = default;
  /// Stores a copy, in place of an older value of the key. kResourceExhausted beyond the byte limit or when the system
  /// has no memory, kIoError when the write fails. After an error the key has no value.
  virtual Status put(uint64_t key, std::span<const uint8_t> bytes) = 0;
  /// Fills `out`, which must have the value's size (kInvalidArgument). kNotFound; kIoError and kCorrupt leave `out`
  /// without meaning.
  virtual Status get(uint64_t key, std::span<uint8_t> out) = 0;
  /// Unknown keys are ignored.
  virtual void erase(uint64_t key) = 0;

  virtual size_t bytes() const = 0;            ///< of the values
  virtual size_t allocated_bytes() const = 0;  ///< what the place gives for them: what the limit limits
  virtual const char* place() const = 0;       ///< "host" or "disk"
  virtual StoreStats stats() const = 0;
};

}  // namespace varve::cache
