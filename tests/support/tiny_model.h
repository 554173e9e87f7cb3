#pragma once
// Writes small GGUF models with random weights: every architecture and variant, whole or broken on purpose.

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::testing {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< ne[0] first
  ggml_type type;
};

struct TinySpec {
  std::string architecture = "llama";  ///< llama, qwen2, qwen3, gemma3
  std::string tokenizer = "llama";     ///< llama: SPM with byte fallback; gpt2: byte-level BPE
  int layers = 2, heads = 4, kv_heads = 2, head_dim = 64, embedding = 256, feed_forward = 256;
  ggml_type matrix_type = GGML_TYPE_F16;
  bool tied = false;  ///< no output.weight
  bool qkv_bias = false;
  bool rope_freqs = false;  ///< llama only
  uint32_t seed = 1;
  int files = 1;  ///< more: a split model; the path must end in -00001-of-0000N.gguf
  /// Changes metadata after the defaults are set (of the first file).
  std::function<void(gguf_context*)> edit_metadata = nullptr;
  /// Changes a tensor before it is made; false leaves it out.
  std::function<bool(TinyTensor&)> edit_tensor = nullptr;
};

Status write_tiny_model(const std::string& path, const TinySpec& spec);

/// "<arch>.<name>".
std::string metadata_key(const TinySpec& spec, const std::string& name);

}  // namespace varve::testing
