#pragma once
// One GGUF file, read without trusting it: header, metadata and tensor table in bounded memory, data by position.

#include <gguf.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::model {

class GgufFile {
 public:
  /// Most bytes that header, metadata and tensor table may take (a 262k-token vocabulary needs about 15 MiB).
  static constexpr uint64_t kMostHeaderBytes = uint64_t{64} << 20;

  /// kNotFound, kIoError, or kCorrupt with the reason. Tensor data is checked to lie within the file.
  static Result<GgufFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  /// Offset of the data section: everything before it is header, metadata and tensor table.
  uint64_t data_offset() const;
  const gguf_context* context() const { return context_.get(); }

  /// Reads exactly out.size() bytes at `offset`.
  Status read(uint64_t offset, std::span<uint8_t> out) const;

  bool has(const std::string& key) const;

  /// Typed values. A missing key leaves `out` alone and is an error only when `required`; a key of another type is
  /// always an error (libllama insists on the same types).
  Status get(const std::string& key, uint32_t* out, bool required) const;
  Status get(const std::string& key, uint16_t* out, bool required) const;
  Status get(const std::string& key, int32_t* out, bool required) const;
  Status get(const std::string& key, float* out, bool required) const;
  Status get(const std::string& key, bool* out, bool required) const;
  Status get(const std::string& key, std::string* out, bool required) const;
  /// Element type of an array, GGUF_TYPE_COUNT when the key is missing or no array.
  gguf_type array_type(const std::string& key) const;
  /// Number of elements of an array; 0 when the key is missing or no array.
  size_t array_size(const std::string& key) const;
  /// Id of a key, -1 when missing.
  int64_t find(const std::string& key) const;

 private:
  struct FreeContext {
    void operator()(gguf_context* c) const { gguf_free(c); }
  };
  class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();
    int get() const { return fd_; }

   private:
    int fd_ = -1;
  };

  Status check_tensors_within_file() const;
  Status typed(const std::string& key, gguf_type type, bool required, int64_t* id) const;

  std::string path_;
  uint64_t bytes_ = 0;
  Descriptor fd_;
  std::unique_ptr<gguf_context, FreeContext> context_;
};

}  // namespace varve::model
