#pragma once
// The texts of an evaluation: files, keys of the manifest, or the manifest's list.

#include <filesystem>
#include <string>
#include <vector>

#include "eval/tasks/text_tokens.h"
#include "varve/status.h"

namespace varve::cli {

/// names: files or keys of `varve pull --list`. Without names the manifest's texts that are long enough for slices, or
/// with `prose` those fit to hide needles in; kNotFound says how to fetch what is missing.
Result<std::vector<eval::Document>> read_eval_texts(const std::vector<std::string>& names, bool prose,
                                                    const std::filesystem::path& directory);

}  // namespace varve::cli
