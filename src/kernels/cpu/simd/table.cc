#include "kernels/cpu/simd/targets.h"
//
#include "hwy/detect_targets.h"
#include "kernels/cpu/tables.h"

// Every target is built into every binary; which of them may run is decided at run time (kernels/cpu/features.h).
static_assert((HWY_TARGETS & HWY_AVX2) != 0 && (HWY_TARGETS & HWY_AVX3) != 0 && (HWY_TARGETS & HWY_AVX3_DL) != 0,
              "do not compile this folder with -m flags: a baseline above AVX2 drops the tables below it");

namespace varve::kernels {
namespace {

using Fill = void (*)(Kernels&);

Kernels make_table(const char* name, std::initializer_list<Fill> parts) {
  Kernels table = {};
  table.name = name;
  for (const Fill fill : parts) fill(table);
  return table;
}

}  // namespace

const Kernels& avx2_table() {
  using namespace N_AVX2;
  static const Kernels table =
      make_table("avx2", {fill_planar, fill_rows, fill_dense, fill_curve, fill_rotation, fill_decode, fill_encode});
  return table;
}

const Kernels& avx512_table() {
  using namespace N_AVX3;
  static const Kernels table =
      make_table("avx512", {fill_planar, fill_rows, fill_dense, fill_curve, fill_rotation, fill_decode, fill_encode});
  return table;
}

const Kernels& avx512vnni_table() {
  using namespace N_AVX3_DL;
  static const Kernels table =
      make_table("avx512vnni", {fill_planar, fill_rows, fill_dense, fill_curve, fill_rotation, fill_decode, fill_encode});
  return table;
}

}  // namespace varve::kernels
