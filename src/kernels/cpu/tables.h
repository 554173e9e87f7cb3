#pragma once
// The kernel tables of this library, one per instruction set. Internal: callers go through available() and choose().

#include <span>

#include "kernels/cpu/features.h"
#include "kernels/cpu/kernels.h"

namespace varve::kernels {

/// Plain C++: the reference every other table is tested against.
const Kernels& generic_table();

// One source (simd/), compiled once per instruction set.
const Kernels& avx2_table();
const Kernels& avx512_table();
const Kernels& avx512vnni_table();

/// A table and what the machine must have to run it.
struct TableEntry {
  const char* name;
  const Kernels& (*table)();
  std::span<const Feature> required;
};

/// Every table of this build, best first, whether or not this machine runs it.
std::span<const TableEntry> all_tables();

}  // namespace varve::kernels
