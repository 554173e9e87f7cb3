#pragma once
// How fast decode attention could read its bytes if instructions were all it waited for (docs/performance.md).

#include <optional>
#include <string>

#include "eval/cpu/attention_case.h"

namespace varve::eval {

/// Clock of the calling thread's core while it does integer additions that wait for one another, Hz. Empty where there
/// is no such loop (other than x86-64).
std::optional<double> measured_clock();

/// Bytes of cache per second that `threads` cores can use at most, for the integer formats under the kernel table
/// "avx2"; empty for others. Vector operations for 32 codes of b bits and G query heads: unpacking (1, 2.5, 5.5 for 8,
/// 4, 3 bits), two that part bytes into 16-bit halves, and for each head two multiplies and two additions; four
/// operations a cycle.
std::optional<double> instruction_bound(const std::string& kernels, const std::string& format,
                                        const AttentionShape& shape, double layer_bytes, double clock, int threads);

}  // namespace varve::eval
