#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace varve {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, size_t bytes) { EVP_DigestUpdate(state_->context, data, bytes); }

std::string Sha256::hex() const {
  State copy;  // finishing a copy keeps the running state open for more
  EVP_MD_CTX_copy_ex(copy.context, state_->context);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(copy.context, digest, &size);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

Result<std::string> sha256_of_file(const std::string& path, uint64_t begin, uint64_t end,
                                   const std::function<bool(uint64_t)>& on_bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) {
    const std::string message = path + ": " + std::strerror(errno);
    return errno == ENOENT ? not_found(message) : io_error(message);
  }
  if (fseeko(file.get(), static_cast<off_t>(begin), SEEK_SET) != 0) return io_error(path + ": " + std::strerror(errno));
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  for (uint64_t at = begin; at < end;) {
    const size_t want = static_cast<size_t>(std::min<uint64_t>(buffer.size(), end - at));
    const size_t got = std::fread(buffer.data(), 1, want, file.get());
    if (got == 0) {
      if (std::ferror(file.get())) return io_error(path + ": " + std::strerror(errno));
      return corrupt(path + ": ends at byte " + std::to_string(at) + ", expected " + std::to_string(end));
    }
    hash.update(buffer.data(), got);
    at += got;
    if (on_bytes && !on_bytes(got)) return Status(StatusCode::kCancelled, "interrupted while reading " + path);
  }
  return hash.hex();
}

}  // namespace varve
