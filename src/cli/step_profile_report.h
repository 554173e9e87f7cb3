#pragma once
// `varve bench profile` as tables and as JSON (docs/json.md).

#include <nlohmann/json.hpp>
#include <ostream>

#include "eval/step_profile.h"

namespace varve::cli {

nlohmann::ordered_json step_profile_json(const eval::StepProfileReport& report);
void print_step_profile(std::ostream& out, const eval::StepProfileReport& report);

}  // namespace varve::cli
