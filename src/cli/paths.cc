#include "cli/paths.h"

#include <cstdlib>

#include "base/manifest.h"
#include "cli/verify.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

fs::path cache_dir() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && *xdg) return fs::path(xdg) / "varve";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : ".") / ".cache" / "varve";
}

bool same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal() || fs::equivalent(a, b, error);
}

}  // namespace

fs::path default_model_dir() { return cache_dir() / "models"; }
fs::path default_text_dir() { return cache_dir() / "texts"; }

Status check_distinct(std::span<const std::string> outputs, std::span<const std::string> inputs) {
  const auto clash = [](const std::string& a, const std::string& b) {
    return same_file(a, b) ? invalid_argument(a + " and " + b + " are the same file") : Status();
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const std::string& other : outputs.subspan(i + 1)) {
      if (Status s = clash(outputs[i], other); !s.ok()) return s;
    }
    for (const std::string& input : inputs) {
      if (Status s = clash(outputs[i], input); !s.ok()) return s;
    }
  }
  return {};
}

std::string known_models() {
  std::string list;
  for (const ManifestModel& model : manifest().models) list += (list.empty() ? "" : ", ") + model.key;
  return list;
}

Result<std::string> resolve_model(const std::string& name, const fs::path& model_dir) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  if (fs::exists(name, error)) return invalid_argument("model " + name + " is not a file");
  const ManifestModel* model = manifest().find_model(name);
  if (!model) return not_found("no file and no known model is named '" + name + "' (known: " + known_models() + ")");
  const fs::path file = model_dir / model->file;
  if (!fs::is_regular_file(file, error))
    return not_found("model " + name + " is not in " + model_dir.string() + ": fetch it with varve pull " + name);
  if (Status verified = verify_model(*model, file); !verified.ok()) return verified;
  return file.string();
}

}  // namespace varve::cli
