#pragma once
// Counts this program's calls of operator new.

#include <cstdint>

namespace varve::testing {

int64_t allocations_so_far();

}  // namespace varve::testing
