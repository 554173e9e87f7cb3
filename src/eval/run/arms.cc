#include "eval/run/arms.h"

#include <algorithm>
#include <charconv>

#include "eval/kl.h"

namespace varve::eval {
namespace {

ArmSpec ours(std::string name, Profile profile) {
  ArmSpec arm;
  arm.name = std::move(name);
  arm.profile = std::move(profile);
  return arm;
}

/// Rotated codes of one width for every token, no mean removed and no token kept exact.
Profile uncentred(const std::string& name, const std::string& format, const std::string& description) {
  Profile p;
  p.name = name;
  p.description = description;
  p.page_tokens = 128;
  p.recent_tokens = 0;
  p.sink_tokens = 0;
  p.inner_product_norm = false;
  p.formats.recent = format;
  p.formats.centre = "none";
  return p;
}

Result<ArmSpec> peer(const std::string& name, const std::string& kv_type) {
  ArmSpec arm;
  arm.name = name;
  arm.kind = ArmKind::kPeer;
  arm.kv_type = kv_type;
  return arm;
}

/// An arm by its own name; kNotFound when the name is none of ours.
Result<ArmSpec> special_arm(const std::string& name) {
  if (name == "dense" || name == "dense2" || name == "floor") {
    auto profile = Profile::named("dense");
    if (!profile.ok()) return profile.status();
    ArmSpec arm = ours(name, std::move(*profile));
    if (name == "floor") arm.chunk_tokens = kFloorChunk;
    return arm;
  }
  if (name == "q8_0" || name == "q4_0") return peer(name, name);
  if (name == kPeerReferenceArm) return peer(name, "f16");
  if (name == "tq3") {
    return ours(name, uncentred(name, "k3v3", "every token 3-bit rotated codes, no centre, no exact tokens"));
  }
  if (name == "sabotage") {
    return ours(name, uncentred(name, "k2v8", "2-bit keys without a centre: an arm that must be found out"));
  }
  return not_found(name);
}

Result<ArmSpec> profile_arm(const std::string& text, const FindProfile& find) {
  const size_t at = text.rfind('@');
  const std::string base = text.substr(0, at);
  auto profile = find(base);
  if (!profile.ok()) {
    if (profile.status().code() != StatusCode::kNotFound) return profile.status();
    return invalid_argument("no arm \"" + text + "\" (known: " + known_arms() + "; " + profile.status().message() +
                            ")");
  }
  std::string name = base.find('/') == std::string::npos && !base.ends_with(".json") ? base : profile->name;
  if (name.empty()) name = base;
  if (at != std::string::npos) {
    const std::string seed = text.substr(at + 1);
    const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), profile->rotation_seed);
    if (error != std::errc() || end != seed.data() + seed.size()) {
      return invalid_argument("arm " + text + ": \"" + seed + "\" is not a rotation seed (example: minima@2)");
    }
    name += "@" + seed;
  }
  return ours(name, std::move(*profile));
}

}  // namespace

std::string known_arms() { return "dense, dense2, floor, q8_0, q4_0, llama_f16, tq3, sabotage"; }

double peer_bits(const std::string& kv_type) {
  if (kv_type == "q8_0") return 8.5;
  if (kv_type == "q4_0") return 4.5;
  return 16;
}

std::string ArmSpec::digest() const { return kind == ArmKind::kPeer ? "llama.cpp " + kv_type : profile.digest(); }

Result<std::vector<ArmSpec>> parse_arms(std::span<const std::string> names, const FindProfile& find,
                                        bool peer_reference) {
  std::vector<ArmSpec> arms;
  const auto add = [&](const std::string& text) -> Status {
    auto arm = special_arm(text);
    if (!arm.ok() && arm.status().code() == StatusCode::kNotFound) arm = profile_arm(text, find);
    if (!arm.ok()) return arm.status();
    for (const ArmSpec& other : arms) {
      if (other.name == arm->name) return invalid_argument("two arms are named " + arm->name);
    }
    arms.push_back(std::move(*arm));
    return {};
  };
  if (Status s = add(kReferenceArm); !s.ok()) return s;
  for (const std::string& name : names) {
    if (name == kReferenceArm && std::ranges::count(names, name) == 1) continue;
    if (Status s = add(name); !s.ok()) return s;
  }
  const auto is_peer = [](const ArmSpec& a) { return a.kind == ArmKind::kPeer; };
  const auto has = [&](const char* name) {
    return std::ranges::any_of(arms, [&](const ArmSpec& a) { return a.name == name; });
  };
  if (peer_reference && std::ranges::any_of(arms, is_peer) && !has(kPeerReferenceArm)) {
    if (Status s = add(kPeerReferenceArm); !s.ok()) return s;
  }
  return arms;
}

}  // namespace varve::eval
