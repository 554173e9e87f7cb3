#pragma once
// Bench rows as a table and as JSON (docs/json.md).

#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "eval/speed.h"

namespace varve::cli {

/// {machine, build, rows}.
nlohmann::ordered_json bench_json(const std::vector<eval::BenchRow>& rows);
void print_bench(std::ostream& out, const std::vector<eval::BenchRow>& rows);

}  // namespace varve::cli
