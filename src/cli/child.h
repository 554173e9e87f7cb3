#pragma once
// A helper program as a child process: exec'd directly, never through a shell, silent, and stoppable.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

struct ChildOptions {
  std::filesystem::path directory;  ///< its working directory
  std::filesystem::path temp;       ///< its TMPDIR
  std::filesystem::path log;        ///< where its stdout and stderr go
  /// Asked about every 50 ms while it runs; false ends it, and run_child returns kCancelled.
  std::function<bool()> keep_going;
};

/// Runs `arguments` (the program, found in PATH, first) to its end, with no input.
/// @return ok when it exits with 0; kNotFound when there is no such program; kIoError with its last words otherwise
Status run_child(const std::vector<std::string>& arguments, const ChildOptions& options);

}  // namespace varve::cli
