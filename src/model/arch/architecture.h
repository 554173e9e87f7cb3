#pragma once
// What this project must know of one architecture: the tensors a file has to hold, and the graph over them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct ggml_tensor;

namespace varve::model {

struct HParams;
class GraphBuilder;

/// A tensor the graph reads. Matrices may have any weight type, vectors are fp32.
struct TensorSpec {
  std::string name;
  int64_t columns = 0;  ///< ne[0]
  int64_t rows = 1;     ///< ne[1]; 1: a vector
  bool required = true;
};

struct Architecture {
  std::string_view name;
  bool neox;           ///< RoPE turns pairs (i, i + n/2)
  bool full_rotation;  ///< libllama insists on n_rot == head_dim
  bool sliding;        ///< sliding-window layers, own RoPE base there, logit soft-cap
  /// Values that follow from others and are in no key; may be null.
  void (*adjust)(HParams& h);
  std::vector<TensorSpec> (*tensors)(const HParams& h);
  /// Adds the whole step to the builder's graph.
  void (*build)(GraphBuilder& g);
};

/// Null when unknown.
const Architecture* find_architecture(std::string_view name);

extern const Architecture kLlama, kQwen2, kQwen3, kGemma3;

}  // namespace varve::model
