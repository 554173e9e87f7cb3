#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "cli/command.h"

namespace varve::cli {
namespace {

void print_text(const BuildInfo& build, const MachineInfo& machine) {
  std::cout << "varve " << build.version << " (" << build.build_type << ", " << build.compiler;
  if (*build.sanitizers) std::cout << ", sanitizers " << build.sanitizers;
  std::cout << ")\n";
  std::cout << "llama.cpp from " << build.llama_cpp << ", ggml built " << build.ggml_isa << "\n";
  std::cout << machine.cpu << ", " << machine.cores << " cores:";
  for (const std::string& feature : machine.features) std::cout << " " << feature;
  std::cout << "\n";
}

void print_json(const BuildInfo& build, const MachineInfo& machine) {
  const nlohmann::ordered_json document = {
      {"version", build.version},
      {"build_type", build.build_type},
      {"compiler", build.compiler},
      {"sanitizers", build.sanitizers},
      {"ggml_isa", build.ggml_isa},
      {"llama_cpp", {{"source", build.llama_cpp}, {"sha256", build.llama_cpp_sha256}}},
      {"machine", {{"cpu", machine.cpu}, {"cores", machine.cores}, {"features", machine.features}}},
  };
  std::cout << document.dump(2) << "\n";
}

}  // namespace

Action define_version(CLI::App& app) {
  const auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON document (keys: docs/json.md)");
  return [json] {
    (*json ? print_json : print_text)(build_info(), machine_info());
    return Status();
  };
}

}  // namespace varve::cli
