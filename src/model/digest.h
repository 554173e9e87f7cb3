#pragma once
// A model's identity for caches and fingerprints.

#include <span>
#include <string>

#include "model/gguf_file.h"
#include "varve/status.h"

namespace varve::model {

/// SHA-256, in hex, over, for each file in split order: its size (u64, little endian), all bytes before its data
/// section (header, metadata, tensor table), and of each tensor in table order up to kDigestSamples evenly spaced runs
/// of kDigestSampleBytes, first and last bytes included. A file that differs only outside the samples is not told
/// apart: this detects other models and other quantisations, not tampering.
Result<std::string> model_digest(std::span<const GgufFile> files);

inline constexpr int kDigestSamples = 4;
inline constexpr size_t kDigestSampleBytes = 256;

}  // namespace varve::model
