#pragma once
// What this build is, and what the machine under it offers. Every measured row names both.

#include <string>
#include <vector>

namespace varve {

struct BuildInfo {
  const char* version;           ///< of varve, from CMakeLists.txt
  const char* build_type;        ///< "Release", "RelWithDebInfo", ...
  const char* compiler;          ///< e.g. "GNU 12.2.0"
  const char* sanitizers;        ///< e.g. "address,undefined"; "" for none
  const char* ggml_isa;          ///< "native" or "portable": what ggml's kernels were built for
  const char* llama_cpp;         ///< the pinned source, e.g. "llama-cpp-python 0.3.36"
  const char* llama_cpp_sha256;  ///< of that source archive
};

const BuildInfo& build_info();

struct MachineInfo {
  std::string cpu;                    ///< the processor's own name, "unknown" when the system does not say
  int cores = 0;                      ///< logical processors this process may use
  std::vector<std::string> features;  ///< the instruction set extensions that kernels here may choose, e.g. "avx2"
};

MachineInfo machine_info();

}  // namespace varve
