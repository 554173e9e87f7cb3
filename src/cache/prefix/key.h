#pragma once
// The name of a cached chunk of tokens: a SHA-256 chained over everything that decides what its pages hold.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace varve::cache {

struct KeyFields {
  std::string_view model_digest;       ///< the weights, adapters included
  std::string_view codec_fingerprint;  ///< profile, page formats, page sizes: how rows become bytes
  std::string_view tenant;             ///< salt: callers with different ones share nothing
  std::string_view parent;             ///< key of the chunk before; empty for the first
  std::span<const int32_t> ids;        ///< token ids of the chunk
};

/// 64 lower-case hexadecimal digits. Every field is preceded by a tag of its own and its length in bytes (64 bits,
/// little-endian), so no two different sets of fields are hashed from the same bytes.
std::string prefix_key(const KeyFields& fields);

using KeyFn = std::function<std::string(const KeyFields&)>;

}  // namespace varve::cache
