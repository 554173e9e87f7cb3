#pragma once
// The one way a command ends in failure: one line on stderr, one exit code.

#include <string>
#include <string_view>

#include "cli/exit_codes.h"
#include "varve/status.h"

namespace varve::cli {

/// `text` on one printable line: line breaks and other control characters become spaces, outer blanks go.
std::string one_line(std::string_view text);

/// Prints "varve COMMAND: MESSAGE" on stderr (just "varve: MESSAGE" for an empty command) when `status` is not ok,
/// and returns its exit code.
ExitCode report(std::string_view command, const Status& status);

}  // namespace varve::cli
