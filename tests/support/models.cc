#include "support/models.h"

#include <cstdlib>
#include <filesystem>

namespace varve::testing {
namespace {

struct Entry {
  const char *key, *file;
};
constexpr Entry kModels[] = {
    {"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
    {"gemma3-270m", "gemma-3-270m.Q4_K_M.gguf"},
    {"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
    {"qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
};

std::filesystem::path directory() {
  if (const char* chosen = std::getenv("VARVE_MODELS")) return chosen;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".cache/varve/models";
}

}  // namespace

std::optional<std::string> find_model(const std::string& key) {
  for (const Entry& e : kModels) {
    if (key != e.key) continue;
    const std::filesystem::path path = directory() / e.file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return std::nullopt;
}

bool models_required() { return std::getenv("VARVE_REQUIRE_MODELS") != nullptr; }

}  // namespace varve::testing
