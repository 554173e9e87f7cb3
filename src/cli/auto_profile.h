#pragma once
// What `--profile auto` stands for: the profile that was calibrated for the model at hand.

#include <filesystem>
#include <string>

#include "cli/model_options.h"
#include "varve/profile.h"

namespace varve::cli {

/// "model.profile.json" beside "model.gguf": where `varve calibrate` writes and `auto` looks first.
std::filesystem::path profile_beside(const std::filesystem::path& model_file);
/// The same in the model directory, by the model's digest: for models in directories that cannot be written.
std::filesystem::path profile_in(const std::filesystem::path& model_dir, const std::string& model_digest);

/// The user's profile beside the model, else in `model_dir`, else the one that comes with varve. kInvalidArgument with
/// both digests when a file found was calibrated for another model; kNotFound says to run `varve calibrate`.
Result<Profile> find_auto_profile(const std::string& model_file, const std::filesystem::path& model_dir);

/// A profile argument: "auto", or what Profile::load takes. "auto" reads the header of the model of -m.
Result<Profile> load_profile(const std::string& name, const ModelOptions& options);

}  // namespace varve::cli
