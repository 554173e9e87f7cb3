#pragma once
// What this CPU, under this operating system, can run.

#include <span>
#include <string>

namespace varve::kernels {

struct Feature {
  const char* name;  ///< as in /proc/cpuinfo
  bool (*present)();
};

/// What each table of simd/ is compiled with; `avx512vnni` also needs what `avx512` needs, and that what `avx2` needs.
std::span<const Feature> avx2_features();
std::span<const Feature> avx512_features();
std::span<const Feature> avx512vnni_features();

/// Names separated by spaces; only those this machine lacks when `missing_only`.
std::string feature_names(std::span<const Feature> features, bool missing_only);

}  // namespace varve::kernels
