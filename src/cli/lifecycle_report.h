#pragma once
// `varve bench lifecycle`: the report as text and as JSON.

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "eval/lifecycle.h"

namespace varve::cli {

void print_lifecycle(std::ostream& out, const eval::LifecycleReport& report);
nlohmann::ordered_json lifecycle_json(const eval::LifecycleReport& report);

}  // namespace varve::cli
