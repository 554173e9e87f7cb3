#include "cli/auto_profile.h"

#include "cli/paths.h"
#include "engine/shipped_profiles.h"

namespace varve::cli {

namespace fs = std::filesystem;

fs::path profile_beside(const fs::path& model_file) {
  fs::path out = model_file;
  return out.replace_extension(".profile.json");
}

fs::path profile_in(const fs::path& model_dir, const std::string& model_digest) {
  return model_dir / (model_digest.substr(0, 16) + ".profile.json");
}

Result<Profile> find_auto_profile(const std::string& model_file, const fs::path& model_dir) {
  const auto info = model::Model::describe(model_file);
  if (!info.ok()) return info.status();
  for (const fs::path& path : {profile_beside(model_file), profile_in(model_dir, info->digest)}) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    auto profile = Profile::load(path.string());
    if (!profile.ok()) return profile.status();
    if (profile->model_digest == info->digest) return profile;
    return invalid_argument(path.string() + " was calibrated for model " +
                            (profile->model_digest.empty() ? "(none named)" : profile->model_digest) + "; " +
                            model_file + " is " + info->digest);
  }
  auto shipped = engine::shipped_profile(info->digest);
  if (shipped.ok() || shipped.status().code() != StatusCode::kNotFound) return shipped;
  return not_found("no profile is calibrated for " + model_file + ": run varve calibrate -m " + model_file +
                   ", or choose another --profile");
}

Result<Profile> load_profile(const std::string& name, const ModelOptions& options) {
  if (name != "auto") return Profile::load(name);
  const auto path = resolve_model(options.model, options.model_dir);
  if (!path.ok()) return path.status();
  return find_auto_profile(*path, options.model_dir);
}

}  // namespace varve::cli
