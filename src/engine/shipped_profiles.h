#pragma once
// Profiles that come with varve, calibrated for the models of the manifest: share/profiles, embedded at build time.

#include <string_view>
#include <vector>

#include "varve/profile.h"

namespace varve::engine {

/// All of them; kInternal when one does not parse (a test reads them).
Result<std::vector<Profile>> shipped_profiles();
/// The one for the model with this digest; kNotFound when there is none.
Result<Profile> shipped_profile(std::string_view model_digest);

}  // namespace varve::engine
