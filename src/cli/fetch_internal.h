#pragma once
// Shared by fetch_model.cc and fetch_text.cc.

#include <filesystem>

#include "cli/fetch.h"
#include "varve/status.h"

namespace varve::cli {

/// A directory for one fetch, emptied when made and removed when the fetch ends either way.
class Scratch {
 public:
  static Result<Scratch> make(const std::filesystem::path& path);
  ~Scratch();
  Scratch(Scratch&& other) noexcept;
  Scratch(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Bytes of all files in it now: how far a download that goes there has come.
  uint64_t bytes() const;

 private:
  explicit Scratch(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// The options with absolute paths: the helper programs run in another directory.
FetchOptions absolute(const FetchOptions& options);

/// Makes `directory` and says the reason when that fails.
Status make_directory(const std::filesystem::path& directory);

}  // namespace varve::cli
