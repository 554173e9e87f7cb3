#pragma once
// Text that comes from files: read whole, checked, never truncated.

#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

/// The file's bytes ("-": stdin); kInvalidArgument with the offset where they are not UTF-8.
Result<std::string> read_text(const std::string& path);

/// The texts one after the other, an empty line between; then `question` after another empty line.
std::string join_documents(std::span<const std::string> texts, const std::string& question);

/// The lines of a file that are not blank. kInvalidArgument when there is none.
Result<std::vector<std::string>> read_lines(const std::string& path);

}  // namespace varve::cli
