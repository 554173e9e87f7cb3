#pragma once
// What a profile means for a model: attention classes, their geometry, and the slot layout of every tier. Pure
// arithmetic: `inspect` prices a profile with it, the engine allocates by it.

#include <array>
#include <memory>
#include <vector>

#include "cache/cache.h"
#include "format/layout.h"
#include "model/model.h"
#include "varve/profile.h"

namespace varve::engine {

/// The layers that share pools and block tables: all with the same window.
struct ClassPlan {
  int window = 0;  ///< 0: full attention
  std::vector<format::LayerGeometry> layers;
  std::array<format::SlotLayout, cache::kTiers> slots;  ///< bytes == 0: the tier is not used
  std::array<std::string, cache::kTiers> format_names;  ///< "mixed" where layers differ
  format::StripLayout strip;
  size_t dense_bytes_per_token = 0;  ///< f16 K and V of these layers

  bool uses(cache::Tier tier) const { return slots[static_cast<size_t>(tier)].bytes != 0; }
  const format::SlotLayout& slot(cache::Tier tier) const { return slots[static_cast<size_t>(tier)]; }
  /// Tokens of a sequence of `length` that this class keeps.
  int64_t kept_tokens(int64_t length) const;
};

struct CachePlan {
  std::vector<ClassPlan> classes;
  std::vector<int> class_of_layer;  ///< by model layer index; -1: the layer owns no KV
  std::vector<std::unique_ptr<format::Rotation>> rotations;
  std::vector<std::unique_ptr<format::RotaryTable>> rotary_tables;

  /// Bytes of the dense f16 cache of one sequence of `tokens`, windows applied.
  size_t dense_bytes(int64_t tokens) const;
  /// K(L) of equation 14: bytes that a sequence of `tokens` allocates once conversions have caught up, its anchor
  /// budget filled.
  size_t sequence_bytes(const Profile& profile, int64_t tokens) const;
};

/// kUnsupported for a head_dim without a codec; kInvalidArgument for overrides beyond the model's layers and for a
/// profile that was calibrated for another model (both digests are in the message).
Result<CachePlan> plan_cache(const model::ModelInfo& info, const Profile& profile);

}  // namespace varve::engine
