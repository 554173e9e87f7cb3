#include "cli/report.h"

#include <cstdio>

namespace varve::cli {

ExitCode exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return kExitOk;
    case StatusCode::kInvalidArgument: return kExitUsage;
    case StatusCode::kNotFound:
    case StatusCode::kUnsupported:
    case StatusCode::kCorrupt: return kExitInput;
    case StatusCode::kResourceExhausted:
    case StatusCode::kContextOverflow: return kExitResources;
    case StatusCode::kIoError: return kExitSystem;
    case StatusCode::kCancelled: return kExitInterrupted;
    case StatusCode::kInternal: return kExitInternal;
  }
  return kExitInternal;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (!control) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

ExitCode report(std::string_view command, const Status& status) {
  if (status.ok()) return kExitOk;
  std::string prefix = "varve";
  if (!command.empty()) prefix.append(" ").append(command);
  if (status.code() == StatusCode::kInternal) prefix += ": internal error";
  std::fprintf(stderr, "%s: %s\n", prefix.c_str(), one_line(status.message()).c_str());
  return exit_code(status.code());
}

}  // namespace varve::cli
