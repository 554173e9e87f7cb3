#pragma once
// A GGUF model: geometry, vocabulary and weights, loaded through libllama so that weights sit in the buffers (mmap,
// repacked) llama.cpp itself would use. Graphs are ours (arch/); only model.cc and arch/ know ggml and libllama.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "varve/status.h"

struct llama_model;
struct llama_vocab;

namespace varve::model {

struct HParams;
struct Weights;

/// One KV-owning layer, in the words of the format and attention layers.
struct LayerInfo {
  int layer = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0;
  float softcap = 0;
  int window = 0;            ///< 0: full attention
  std::vector<float> theta;  ///< effective RoPE frequencies, radians per token, [n_rot / 2]
  bool neox = false;         ///< pair layout of RoPE
  float k_bias_norm = 0;     ///< L2 norm of the k projection's bias over all KV heads; 0: no bias
};

struct ModelInfo {
  std::string path, architecture, name, digest;  ///< digest: see digest.h, hex
  int layers = 0, embedding = 0, vocabulary = 0, context_train = 0;
  uint64_t file_bytes = 0, parameters = 0;
  std::vector<LayerInfo> kv_layers;  ///< empty when loaded with vocab_only
};

struct LoadOptions {
  std::function<bool(float)> progress = nullptr;  ///< 0..1; false cancels
  bool repack = true;                             ///< use ggml's repacked CPU buffers where it would
  bool vocab_only = false;
};

class Model {
 public:
  /// Validates the file (magic, sizes, architecture, tensor table) before libllama sees it.
  static Result<std::shared_ptr<Model>> load(const std::string& path, const LoadOptions& options);
  ~Model();

  /// What the files' headers say, checked as load() checks them; weights are neither read nor mapped.
  static Result<ModelInfo> describe(const std::string& path);

  const ModelInfo& info() const;
  const llama_vocab* vocab() const;
  llama_model* handle() const;
  const HParams& hparams() const;
  /// Tensors for graphs; empty when loaded with vocab_only.
  const Weights& weights() const;
  /// Bytes of weights that ggml rewrote into a faster layout (0 without repack).
  size_t repacked_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Model();
};

/// Names of the architectures with a graph in arch/.
std::vector<std::string> supported_architectures();

}  // namespace varve::model
