#include "model/arch/architecture.h"

#include <array>

#include "model/model.h"

namespace varve::model {
namespace {

const std::array<const Architecture*, 4> kArchitectures{&kLlama, &kQwen2, &kQwen3, &kGemma3};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* a : kArchitectures) {
    if (a->name == name) return a;
  }
  return nullptr;
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture* a : kArchitectures) names.emplace_back(a->name);
  return names;
}

}  // namespace varve::model
