#include "base/build_info.h"

#include <fstream>

#include "base/system.h"

namespace varve {

const BuildInfo& build_info() {
  // The VARVE_BUILD_* definitions come from CMakeLists.txt, for this file alone.
  static constexpr BuildInfo info{VARVE_BUILD_VERSION,         VARVE_BUILD_TYPE,     VARVE_BUILD_COMPILER,
                                  VARVE_BUILD_SANITIZERS,      VARVE_BUILD_GGML_ISA, VARVE_BUILD_LLAMA_CPP,
                                  VARVE_BUILD_LLAMA_CPP_SHA256};
  return info;
}

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // __builtin_cpu_supports takes literals only. F16C, which the kernels also need, comes with every AVX2 processor.
  if (__builtin_cpu_supports("avx2")) found.push_back("avx2");
  if (__builtin_cpu_supports("fma")) found.push_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.push_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) found.push_back("avx512bw");
  if (__builtin_cpu_supports("avx512vl")) found.push_back("avx512vl");
  if (__builtin_cpu_supports("avx512vnni")) found.push_back("avx512vnni");
#endif
  return found;
}

}  // namespace

MachineInfo machine_info() { return {cpu_name(), processor_count(), cpu_features()}; }

}  // namespace varve
