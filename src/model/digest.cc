#include "model/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace varve::model {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    ok_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }

  void add(std::span<const uint8_t> bytes) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
  }

  Result<std::string> hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    ok_ = ok_ && EVP_DigestFinal_ex(context_.get(), digest, &bytes) == 1;
    if (!ok_) return internal_error("OpenSSL refused to compute a SHA-256");
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < bytes; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* c) const { EVP_MD_CTX_free(c); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
  bool ok_ = false;
};

/// Adds bytes [offset, offset + n) of the file.
Status add_range(Sha256& sha, const GgufFile& file, uint64_t offset, uint64_t n, std::vector<uint8_t>& buffer) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  while (n > 0) {
    buffer.resize(static_cast<size_t>(std::min(n, kPieceBytes)));
    if (Status s = file.read(offset, buffer); !s.ok()) return s;
    sha.add(buffer);
    offset += buffer.size();
    n -= buffer.size();
  }
  return Status();
}

}  // namespace

Result<std::string> model_digest(std::span<const GgufFile> files) {
  Sha256 sha;
  std::vector<uint8_t> buffer;
  for (const GgufFile& file : files) {
    uint8_t size[8];
    for (int i = 0; i < 8; ++i) size[i] = static_cast<uint8_t>(file.bytes() >> (8 * i));
    sha.add(size);
    if (Status s = add_range(sha, file, 0, std::min(file.data_offset(), file.bytes()), buffer); !s.ok()) return s;
    for (int64_t t = 0; t < gguf_get_n_tensors(file.context()); ++t) {
      const uint64_t begin = file.data_offset() + gguf_get_tensor_offset(file.context(), t);
      const uint64_t bytes = gguf_get_tensor_size(file.context(), t);
      if (bytes <= kDigestSamples * kDigestSampleBytes) {
        if (Status s = add_range(sha, file, begin, bytes, buffer); !s.ok()) return s;
        continue;
      }
      for (uint64_t i = 0; i < kDigestSamples; ++i) {
        const uint64_t at = (bytes - kDigestSampleBytes) * i / (kDigestSamples - 1);
        if (Status s = add_range(sha, file, begin + at, kDigestSampleBytes, buffer); !s.ok()) return s;
      }
    }
  }
  return sha.hex();
}

}  // namespace varve::model
