#pragma once
// What the shell sees. docs/cli.md lists the same codes; tests/cli holds them to it.

#include "varve/status.h"

namespace varve::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitInternal = 1,  ///< a bug in varve, or a check that the command ran and that did not hold
  kExitUsage = 2,     ///< the command line, a profile or a prompt asks for something that can never work
  kExitInput = 3,     ///< a file or model that does not exist, is damaged, or that this build cannot serve
  kExitResources =
      4,            ///< a stated limit (context, memory budget, disk space) is too small; the message has the numbers
  kExitSystem = 5,  ///< the operating system, the network or a helper program refused
  kExitInterrupted = 130,  ///< Ctrl-C
};

/// The exit code that stands for a status.
ExitCode exit_code(StatusCode code);

}  // namespace varve::cli
