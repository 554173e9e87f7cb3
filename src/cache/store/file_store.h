#pragma once
// Values in one file without a name: whatever ends the process, nothing is left behind, and nobody else can open it.

#include <map>
#include <memory>
#include <string>

#include "cache/store/extents.h"
#include "cache/store/page_store.h"

namespace varve::cache {

class FileStore final : public PageStore {
 public:
  /// Creates the file in `directory` and removes its name at once. kIoError with the directory and the system's words.
  static Result<std::unique_ptr<FileStore>> create(const std::string& directory, size_t limit_bytes);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  Status put(uint64_t key, std::span<const uint8_t> bytes) override;
  /// A value whose bytes are not those that were put (XXH3-64) is kCorrupt.
  Status get(uint64_t key, std::span<uint8_t> out) override;
  void erase(uint64_t key) override;
  size_t bytes() const override { return bytes_; }
  size_t allocated_bytes() const override { return extents_.end(); }  ///< of the file, holes between values included
  const char* place() const override { return "disk"; }
  StoreStats stats() const override { return stats_; }

 private:
  struct Value {
    size_t offset;
    size_t bytes;
    uint64_t checksum;
  };
  FileStore(int file, size_t limit_bytes) : file_(file), limit_bytes_(limit_bytes), extents_(limit_bytes) {}
  /// Shortens the file to what is in use.
  void shrink(size_t end_before);

  const int file_;
  const size_t limit_bytes_;
  Extents extents_;
  std::map<uint64_t, Value> values_;
  size_t bytes_ = 0;
  StoreStats stats_;
};

}  // namespace varve::cache
