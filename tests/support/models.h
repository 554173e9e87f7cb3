#pragma once
// Where tests find real models. They are fetched at set-up, never committed.

#include <optional>
#include <string>

namespace varve::testing {

/// Path of a model by its manifest key, in $VARVE_MODELS or ~/.cache/varve/models; nothing when it is not there.
std::optional<std::string> find_model(const std::string& key);

/// Whether a missing model must fail the test instead of skipping it ($VARVE_REQUIRE_MODELS is set).
bool models_required();

}  // namespace varve::testing

/// Declares `name` as the path of a model, or skips (fails when models are required).
#define VARVE_MODEL_OR_SKIP(name, key)                                                                        \
  const auto name##_found = ::varve::testing::find_model(key);                                                \
  if (!name##_found && ::varve::testing::models_required()) FAIL() << "model " << (key) << " is not there";   \
  if (!name##_found) GTEST_SKIP() << "model " << (key) << " is not in ~/.cache/varve/models; fetch it first"; \
  const std::string name = *name##_found
