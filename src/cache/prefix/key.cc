#include "cache/prefix/key.h"

#include <array>
#include <vector>

#include "base/sha256.h"

namespace varve::cache {
namespace {

constexpr std::string_view kDomain = "varve prefix 1";

std::array<uint8_t, 8> little_endian(uint64_t value) {
  std::array<uint8_t, 8> bytes;
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(value);
    value >>= 8;
  }
  return bytes;
}

void add_length(Sha256* hash, size_t bytes) {
  const std::array<uint8_t, 8> length = little_endian(bytes);
  hash->update(length.data(), length.size());
}

void add_field(Sha256* hash, std::string_view tag, const void* data, size_t bytes) {
  add_length(hash, tag.size());
  hash->update(tag.data(), tag.size());
  add_length(hash, bytes);
  hash->update(data, bytes);
}

void add_field(Sha256* hash, std::string_view tag, std::string_view text) {
  add_field(hash, tag, text.data(), text.size());
}

}  // namespace

std::string prefix_key(const KeyFields& fields) {
  Sha256 hash;
  add_field(&hash, "domain", kDomain);
  add_field(&hash, "model", fields.model_digest);
  add_field(&hash, "codec", fields.codec_fingerprint);
  add_field(&hash, "tenant", fields.tenant);
  add_field(&hash, "parent", fields.parent);
  std::vector<uint8_t> ids;
  ids.reserve(fields.ids.size() * 4);
  for (const int32_t id : fields.ids) {
    const std::array<uint8_t, 8> bytes = little_endian(static_cast<uint32_t>(id));
    ids.insert(ids.end(), bytes.begin(), bytes.begin() + 4);
  }
  add_field(&hash, "ids", ids.data(), ids.size());
  return hash.hex();
}

}  // namespace varve::cache
