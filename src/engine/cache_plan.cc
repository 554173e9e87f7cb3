#include "engine/cache_plan.h"

#include <algorithm>
#include <map>

namespace varve::engine {
namespace {

using cache::Tier;

const std::string& tier_format(const TierFormats& f, Tier tier) {
  switch (tier) {
    case Tier::kAnchor: return f.anchor;
    case Tier::kStale1: return f.stale1;
    case Tier::kStale2: return f.stale2;
    default: return f.recent;
  }
}

/// Shares one Rotation per head_dim and one RotaryTable per distinct vector of frequencies.
class Tables {
 public:
  Tables(CachePlan& plan, uint64_t seed) : plan_(plan), seed_(seed) {}

  Result<const format::Rotation*> rotation(int head_dim) {
    if (const auto it = rotations_.find(head_dim); it != rotations_.end()) return it->second;
    auto made = format::Rotation::create(head_dim, seed_);
    if (!made.ok()) return made.status();
    plan_.rotations.push_back(std::make_unique<format::Rotation>(std::move(*made)));
    return rotations_[head_dim] = plan_.rotations.back().get();
  }

  const format::RotaryTable* rotary(const model::LayerInfo& layer) {
    auto& found = rotary_[{layer.theta, layer.head_dim, layer.neox}];
    if (found == nullptr) {
      plan_.rotary_tables.push_back(std::make_unique<format::RotaryTable>(layer.theta, layer.head_dim, layer.neox));
      found = plan_.rotary_tables.back().get();
    }
    return found;
  }

 private:
  CachePlan& plan_;
  uint64_t seed_;
  std::map<int, const format::Rotation*> rotations_;
  std::map<std::tuple<std::vector<float>, int, bool>, const format::RotaryTable*> rotary_;
};

/// Codes of 8 bits and more, of which a low-rank basis may be built.
bool is_fine(const format::LayerFormat& f) {
  return !f.is_low_rank() && format::k_codec(f.k).bits >= 8 && format::v_codec(f.v).bits >= 8;
}

/// A page comes to a tier from any other. A low-rank one needs fine sources: over coarse codes a basis fits their noise,
/// and nothing shows it.
Status check_sources(const ClassPlan& cls, const std::string& profile) {
  for (size_t i = 0; i < cls.layers.size(); ++i) {
    const std::string layer = "profile " + profile + ": layer " + std::to_string(cls.layers[i].layer) + ": ";
    for (size_t to = 0; to < cache::kTiers; ++to) {
      if (cls.slots[to].bytes == 0) continue;
      const format::LayerFormat& target = cls.slots[to].layers[i].format;
      if (!target.is_low_rank()) continue;
      const std::string low_rank = format::format_name(target);
      if (static_cast<Tier>(to) == Tier::kRecent) {
        return invalid_argument(layer + "tier recent is " + low_rank +
                                "; recent pages are written tile by tile and must be f16, fp8, int8 or k<K>v<V>");
      }
      for (size_t from = 0; from < cache::kTiers; ++from) {
        if (from == to || cls.slots[from].bytes == 0) continue;
        const format::LayerFormat& source = cls.slots[from].layers[i].format;
        if (source == target || is_fine(source)) continue;
        const std::string bits = source.is_low_rank()
                                     ? std::string("low-rank itself")
                                     : std::to_string(format::k_codec(source.k).bits) + "-bit keys and " +
                                           std::to_string(format::v_codec(source.v).bits) + "-bit values";
        return invalid_argument(layer + "tier " + cache::tier_name(static_cast<Tier>(to)) + " is " + low_rank +
                                " and would be built from tier " + cache::tier_name(static_cast<Tier>(from)) + ", " +
                                format::format_name(source) + " (" + bits +
                                "); a low-rank basis needs at least 8 bits of both");
      }
    }
  }
  return {};
}

Status plan_tiers(ClassPlan& cls, const std::vector<TierFormats>& formats, const Profile& profile) {
  for (size_t t = 0; t < cache::kTiers; ++t) {
    const Tier tier = static_cast<Tier>(t);
    if (tier_format(profile.formats, tier).empty()) continue;
    std::vector<format::LayerFormat> parsed;
    for (const TierFormats& f : formats) {
      const auto centre = format::parse_centre(f.centre.empty() ? "none" : f.centre);
      if (!centre.ok()) return centre.status();
      const auto format = format::parse_format(tier_format(f, tier), *centre);
      if (!format.ok()) return format.status();
      parsed.push_back(*format);
      std::string& name = cls.format_names[t];
      const std::string this_name = format::format_name(*format);
      name = name.empty() || name == this_name ? this_name : "mixed";
    }
    if (Status s = format::check_layout(cls.layers, parsed, profile.page_tokens, profile.sink_tokens); !s.ok())
      return s;
    cls.slots[t] = format::slot_layout(cls.layers, parsed, profile.page_tokens);
    if (tier == Tier::kRecent) cls.strip = format::strip_layout(cls.layers, parsed, profile.sink_tokens);
  }
  return check_sources(cls, profile.name);
}

}  // namespace

int64_t ClassPlan::kept_tokens(int64_t length) const { return window > 0 ? std::min<int64_t>(length, window) : length; }

size_t CachePlan::dense_bytes(int64_t tokens) const {
  size_t total = 0;
  for (const ClassPlan& c : classes) total += static_cast<size_t>(c.kept_tokens(tokens)) * c.dense_bytes_per_token;
  return total;
}

size_t CachePlan::sequence_bytes(const Profile& profile, int64_t tokens) const {
  size_t total = 0;
  for (const ClassPlan& c : classes) {
    const int64_t page = profile.page_tokens;
    const int64_t pages = (tokens + page - 1) / page;
    const int64_t first = c.window > 0 ? std::max<int64_t>(0, tokens - c.window) / page : 0;
    // Full pages whose last token is recent_tokens or more from the end are stale; the page being filled never is.
    const int64_t old_pages = std::max<int64_t>(0, tokens - profile.recent_tokens) / page;
    const int64_t stale = c.uses(Tier::kStale1) ? std::clamp<int64_t>(old_pages - first, 0, pages - first) : 0;
    // Anchors are pages that would be stale; a session may fill its whole anchor budget.
    const bool anchors = profile.scoring.on && c.uses(Tier::kAnchor) && c.uses(Tier::kStale1);
    const int64_t anchored = anchors ? std::min<int64_t>(stale, profile.scoring.anchor_tokens / page) : 0;
    total += static_cast<size_t>(anchored) * c.slot(Tier::kAnchor).bytes;
    total += static_cast<size_t>(stale - anchored) * c.slot(Tier::kStale1).bytes;
    total += static_cast<size_t>(pages - first - stale) * c.slot(Tier::kRecent).bytes;
    total += c.strip.bytes;
  }
  return total;
}

Result<CachePlan> plan_cache(const model::ModelInfo& info, const Profile& profile) {
  if (Status s = profile.validate(); !s.ok()) return s;
  if (!profile.model_digest.empty() && profile.model_digest != info.digest) {
    return invalid_argument("profile " + profile.name + " was calibrated for model " + profile.model_digest +
                            "; this model is " + info.digest + ": run varve calibrate for it");
  }
  const int count = static_cast<int>(info.kv_layers.size());
  for (const LayerOverride& o : profile.layers) {
    if (std::max(o.first, o.last) >= count || std::min(o.first, o.last) < -count) {
      return invalid_argument("profile: a layer override names layers " + std::to_string(o.first) + ".." +
                              std::to_string(o.last) + "; the model has " + std::to_string(count) + " KV layers");
    }
  }

  CachePlan plan;
  plan.class_of_layer.assign(static_cast<size_t>(info.layers), -1);
  Tables tables(plan, profile.rotation_seed);
  std::map<int, size_t> class_of_window;
  std::vector<std::vector<TierFormats>> formats;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const model::LayerInfo& layer = info.kv_layers[static_cast<size_t>(ordinal)];
    const auto rotation = tables.rotation(layer.head_dim);
    if (!rotation.ok()) return rotation.status();
    const auto [it, fresh] = class_of_window.try_emplace(layer.window, plan.classes.size());
    if (fresh) {
      plan.classes.emplace_back().window = layer.window;
      formats.emplace_back();
    }
    ClassPlan& cls = plan.classes[it->second];
    cls.layers.push_back({.layer = layer.layer,
                          .q_heads = layer.q_heads,
                          .kv_heads = layer.kv_heads,
                          .head = {layer.head_dim, *rotation, tables.rotary(layer)},
                          .scale = layer.scale,
                          .softcap = layer.softcap,
                          .window = layer.window});
    cls.dense_bytes_per_token += size_t{2} * 2 * static_cast<size_t>(layer.kv_heads * layer.head_dim);
    TierFormats layer_formats = profile.layer_formats(ordinal, count);
    // A bias on K is constant before RoPE, which only the rotary centre removes; without one the plain mean is cheaper
    // to read and no worse (docs/adr/0003).
    if (layer_formats.centre == "auto") layer_formats.centre = layer.k_bias_norm > 0 ? "rotary" : "post";
    formats[it->second].push_back(std::move(layer_formats));
    plan.class_of_layer[static_cast<size_t>(layer.layer)] = static_cast<int>(it->second);
  }
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    if (Status s = plan_tiers(plan.classes[c], formats[c], profile); !s.ok()) return s;
  }
  return plan;
}

}  // namespace varve::engine
