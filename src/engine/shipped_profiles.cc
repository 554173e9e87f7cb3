#include "engine/shipped_profiles.h"

#include <nlohmann/json.hpp>

namespace varve::engine {

extern const char* const kShippedProfilesJson;

Result<std::vector<Profile>> shipped_profiles() {
  const auto list = nlohmann::ordered_json::parse(kShippedProfilesJson, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return internal_error("the embedded profiles are no JSON array");
  std::vector<Profile> out;
  for (const auto& entry : list) {
    auto profile = Profile::from_json(entry.dump());
    if (!profile.ok()) return internal_error("embedded profile: " + profile.status().message());
    out.push_back(std::move(*profile));
  }
  return out;
}

Result<Profile> shipped_profile(std::string_view model_digest) {
  auto all = shipped_profiles();
  if (!all.ok()) return all.status();
  for (Profile& profile : *all) {
    if (profile.model_digest == model_digest) return std::move(profile);
  }
  return not_found("no profile comes with varve for model " + std::string(model_digest));
}

}  // namespace varve::engine
