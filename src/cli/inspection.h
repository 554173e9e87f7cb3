#pragma once
// What `varve inspect` finds out about a model without loading it: KV geometry, what profiles would cost, and how many
// sessions a memory holds. The same numbers as text for people and as JSON for programs (docs/json.md).

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "engine/capacity.h"
#include "model/model.h"
#include "varve/profile.h"

namespace varve::cli {

/// RoPE read back from its effective frequencies.
struct RopeShape {
  int dims = 0;               ///< of head_dim, those that turn
  bool neox = false;          ///< pairs (i, i + dims/2), else (2i, 2i+1)
  bool geometric = false;     ///< theta[i] = scale * base^(-2i/dims); else scaled pair by pair (YaRN, factors)
  double base = 0;            ///< of the geometric series, 0 when it is none
  double scale = 1;           ///< theta[0]; below 1 when positions are stretched
  double longest_tokens = 0;  ///< tokens of the slowest pair's full turn
};
RopeShape describe_rope(const model::LayerInfo& layer);

/// Layers with the same window.
struct AttentionClass {
  int window = 0;  ///< 0: full attention
  std::vector<int> layers;
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  RopeShape rope;
  size_t dense_bytes_per_token = 0;
};

struct TierCost {
  std::string tier, format;
  double bytes_per_token = 0;  ///< slot bytes / page tokens, all layers
};

struct LengthCost {
  int64_t tokens = 0;
  size_t dense_bytes = 0;
  engine::CapacityInput terms;  ///< memory_bytes is 0 without a budget
  uint64_t sessions = 0;        ///< by equation 14

  uint64_t physical_bytes() const { return terms.fixed_bytes + terms.kv_bytes; }
  double ratio() const { return double(dense_bytes) / double(physical_bytes()); }
};

struct ProfileCost {
  Profile profile;
  std::vector<TierCost> tiers;
  std::vector<LengthCost> lengths;
};

struct Inspection {
  model::ModelInfo model;
  size_t dense_bytes_per_token = 0;
  std::vector<AttentionClass> classes;
  std::vector<ProfileCost> profiles;
  std::vector<float> k_bias_norms;  ///< by KV layer; empty when no layer has a key bias
  uint64_t budget_bytes = 0;        ///< 0: none was given
};

/// lengths: in tokens, beyond the model's context allowed (the arithmetic holds all the same).
Result<Inspection> inspect_model(model::ModelInfo model, const std::vector<Profile>& profiles,
                                 const std::vector<int>& lengths, uint64_t budget_bytes);

/// A norm this many times the median is marked: such a bias turns with RoPE, so that only a mean taken in the rotary
/// frame removes it.
inline constexpr double kBiasOutlier = 3.0;
std::vector<bool> bias_outliers(const std::vector<float>& norms);

nlohmann::ordered_json inspection_json(const Inspection& inspection);
void print_inspection(std::ostream& out, const Inspection& inspection);

}  // namespace varve::cli
