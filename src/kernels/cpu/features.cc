#include "kernels/cpu/features.h"

#include <cpuid.h>

namespace varve::kernels {
namespace {

// __builtin_cpu_supports also asks whether the operating system saves the registers.
#define VARVE_FEATURE(name)                                  \
  {                                                          \
#name, [] { return __builtin_cpu_supports(#name) != 0; } \
  }

/// Bit of ECX; for the two features whose names not every compiler knows.
template <unsigned leaf, unsigned bit>
bool ecx_bit() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(leaf, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> bit & 1u) != 0;
}

constexpr size_t kAvx2 = 6, kAvx512 = kAvx2 + 4, kAvx512Vnni = kAvx512 + 7;

/// Each table needs a prefix of this list.
constexpr Feature kFeatures[kAvx512Vnni] = {
    VARVE_FEATURE(avx2),        VARVE_FEATURE(fma),          {"f16c", ecx_bit<1, 29>},       VARVE_FEATURE(bmi),
    VARVE_FEATURE(bmi2),        VARVE_FEATURE(pclmul),       VARVE_FEATURE(avx512f),         VARVE_FEATURE(avx512bw),
    VARVE_FEATURE(avx512dq),    VARVE_FEATURE(avx512vl),     VARVE_FEATURE(avx512vnni),      VARVE_FEATURE(avx512vbmi),
    VARVE_FEATURE(avx512vbmi2), VARVE_FEATURE(avx512bitalg), VARVE_FEATURE(avx512vpopcntdq), VARVE_FEATURE(vpclmulqdq),
    {"vaes", ecx_bit<7, 9>},
};

#undef VARVE_FEATURE

}  // namespace

std::span<const Feature> avx2_features() { return {kFeatures, kAvx2}; }
std::span<const Feature> avx512_features() { return {kFeatures, kAvx512}; }
std::span<const Feature> avx512vnni_features() { return {kFeatures, kAvx512Vnni}; }

std::string feature_names(std::span<const Feature> features, bool missing_only) {
  std::string names;
  for (const Feature& feature : features) {
    if (missing_only && feature.present()) continue;
    if (!names.empty()) names += ' ';
    names += feature.name;
  }
  return names;
}

}  // namespace varve::kernels
