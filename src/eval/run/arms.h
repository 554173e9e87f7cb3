#pragma once
// The arms of an evaluation by name: what is compared with the dense cache.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "varve/profile.h"
#include "varve/status.h"

namespace varve::eval {

enum class ArmKind {
  kOurs,  ///< an engine over `profile`
  kPeer,  ///< libllama in this process with `kv_type` keys and values
};

struct ArmSpec {
  std::string name;
  ArmKind kind = ArmKind::kOurs;
  Profile profile;       ///< kOurs
  std::string kv_type;   ///< kPeer
  int chunk_tokens = 0;  ///< kOurs: rows of one step when that is the arm's point; 0: as the run says

  /// What tells two arms of one name apart: the profile's digest, or the peer's KV type.
  std::string digest() const;
  /// Dense keys and values computed by the same code as the reference: its divergence must be exactly 0.
  bool is_control() const { return name == "dense" || name == "dense2"; }
};

inline constexpr const char* kReferenceArm = "dense";
inline constexpr const char* kPeerReferenceArm = "llama_f16";

/// Finds a profile by a name that is no arm's: a profile, a format or a JSON file.
using FindProfile = std::function<Result<Profile>(const std::string&)>;

/// Names of the arms that are not profiles, for messages.
std::string known_arms();

/// dense, dense2, floor, tq3, sabotage, q8_0, q4_0, llama_f16, or what `find` knows; NAME@SEED is the same profile with
/// another rotation seed. The reference is always there and always first; with a peer among the arms `llama_f16` is
/// added when `peer_reference` asks for it. kInvalidArgument for a name twice, for two arms that would have the same
/// name, and for an unknown name (lists the valid ones).
Result<std::vector<ArmSpec>> parse_arms(std::span<const std::string> names, const FindProfile& find,
                                        bool peer_reference);

/// Bits that one value takes in a peer's cache: 16, 8.5 (q8_0) or 4.5 (q4_0), scales included.
double peer_bits(const std::string& kv_type);

}  // namespace varve::eval
