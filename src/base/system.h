#pragma once
// What the machine has.

#include <cstddef>

namespace varve {

/// Processors this process may run on, at least 1.
int processor_count();
/// Memory that can be had without swapping (MemAvailable), or the physical memory where that is not known.
size_t available_memory_bytes();
/// Highest resident set of this process so far.
size_t peak_rss_bytes();

}  // namespace varve
