#pragma once
// The kernel tables of this library, one per instruction set. Internal: callers go through available() and choose().

#include "kernels/cpu/kernels.h"

namespace varve::kernels {

/// Plain C++: the reference every other table is tested against.
const Kernels& generic_table();

}  // namespace varve::kernels
