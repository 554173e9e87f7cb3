#pragma once
// The instruction sets that the files of this folder are compiled for. Each file re-includes itself once per target
// (hwy/foreach_target.h); every function it exports lives in the target's namespace. Include before Highway.

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)

#include "kernels/cpu/kernels.h"

/// What each file adds to a table, once per target.
#define VARVE_DECLARE_SIMD_TARGET(target) \
  namespace varve::kernels::target {      \
  void fill_planar(Kernels& table);       \
  void fill_rows(Kernels& table);         \
  void fill_dense(Kernels& table);        \
  void fill_curve(Kernels& table);        \
  void fill_rotation(Kernels& table);     \
  void fill_decode(Kernels& table);       \
  void fill_encode(Kernels& table);       \
  }

VARVE_DECLARE_SIMD_TARGET(N_AVX2)
VARVE_DECLARE_SIMD_TARGET(N_AVX3)
VARVE_DECLARE_SIMD_TARGET(N_AVX3_DL)

#undef VARVE_DECLARE_SIMD_TARGET
