#pragma once
// One layer-step of decode attention: its shape, random data, the exact result, and who computes it.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/cpu/runner.h"
#include "kernels/cpu/kernels.h"

namespace varve::eval {

struct AttentionShape {
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  int tokens = 0;  ///< what is allocated, a multiple of 256
  /// What the row attends to, itself included: the open tile stays open, so that repeating the step changes nothing.
  int length() const { return tokens - 20; }
  size_t row() const { return static_cast<size_t>(kv_heads) * static_cast<size_t>(head_dim); }
  size_t q_size() const { return static_cast<size_t>(q_heads) * static_cast<size_t>(head_dim); }
  std::string name() const;  ///< "9/3/64 @32K"
};

/// Normal random values. k, v: [tokens][kv_heads][head_dim]; q: [q_heads][head_dim].
struct AttentionData {
  AttentionShape shape;
  std::vector<float> q, k, v;
};
AttentionData random_attention(const AttentionShape& shape);

/// Softmax attention of data.q over length() rows of k and v in fp64, [q_heads][head_dim].
std::vector<double> exact_attention(const AttentionData& data, std::span<const float> k, std::span<const float> v);
/// |out - exact| / |exact|, Euclidean over all heads.
double relative_error(std::span<const float> out, std::span<const double> exact);

/// `layers` caches with the same content, all attended to in one graph.
class AttentionContender {
 public:
  virtual ~AttentionContender() = default;
  virtual size_t layer_bytes() const = 0;  ///< read in one layer-step
  /// Seconds of one layer-step: `passes` over all layers.
  virtual Result<double> run(int passes) = 0;
  virtual std::span<const float> output() const = 0;  ///< of the first layer
  /// Rows as the cache holds them, like AttentionData's.
  virtual void stored(std::vector<float>* k, std::vector<float>* v) const = 0;
  /// What run() reads.
  virtual std::vector<std::span<const uint8_t>> regions() const = 0;
};

/// format: a page format ("k4v3"), with centre ".post" or ".rotary" behind it. As many layers as fill `bytes`, at least
/// one.
Result<std::unique_ptr<AttentionContender>> our_attention(Runner& runner, const AttentionData& data,
                                                          const std::string& format, const kernels::Kernels& kernels,
                                                          size_t bytes);
/// ggml's operators as libllama's graphs use them. type: "f16", "q8_0", "q4_0".
Result<std::unique_ptr<AttentionContender>> peer_attention(Runner& runner, const AttentionData& data,
                                                           const std::string& type, bool flash, size_t bytes);

}  // namespace varve::eval
