#pragma once
// A model of the manifest is used only when its bytes are the manifest's.

#include <filesystem>

#include "base/manifest.h"
#include "varve/status.h"

namespace varve::cli {

/// Ok when `file` hashes to the model's SHA-256. The verdict is kept in FILE.verified with the file's size and time of
/// change, so that the bytes are read again only after the file was touched; where that note cannot be written, each
/// call reads them. kCorrupt says how to repair the file.
Status verify_model(const ManifestModel& model, const std::filesystem::path& file);

}  // namespace varve::cli
