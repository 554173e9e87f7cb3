#pragma once
// SHA-256 (FIPS 180-4) of memory and files, over OpenSSL.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "varve/status.h"

namespace varve {

/// An incremental SHA-256.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, size_t bytes);
  /// The digest so far as 64 lower-case hexadecimal digits; more may be added afterwards.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of bytes [begin, end) of a file.
/// @param on_bytes when set, told how many bytes each read brought; returning false stops with kCancelled
/// @return kNotFound, kIoError, or kCorrupt when the file ends before `end`
Result<std::string> sha256_of_file(const std::string& path, uint64_t begin, uint64_t end,
                                   const std::function<bool(uint64_t)>& on_bytes = {});

}  // namespace varve
