#pragma once
// The summary of a trace for programs (docs/json.md).

#include <nlohmann/json.hpp>

#include "cli/trace/picture.h"

namespace varve::cli {

nlohmann::ordered_json trace_json(const Picture& picture);

}  // namespace varve::cli
