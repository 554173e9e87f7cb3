#include "cli/fetch.h"

#include <unistd.h>

#include "cli/fetch_internal.h"

namespace varve::cli {

namespace fs = std::filesystem;

bool is_fetched(const fs::path& file, uint64_t bytes) {
  std::error_code error;
  return fs::is_regular_file(file, error) && fs::file_size(file, error) == bytes;
}

Status make_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return io_error("cannot make directory " + directory.string() + ": " + error.message());
  if (access(directory.c_str(), W_OK | X_OK) != 0)
    return io_error("directory " + directory.string() + " is not writable");
  return {};
}

FetchOptions absolute(const FetchOptions& options) {
  // An empty path stays empty: it means that there is no such directory.
  const auto make = [](const fs::path& path) { return path.empty() ? path : fs::absolute(path).lexically_normal(); };
  return {make(options.directory), make(options.packages)};
}

Result<Scratch> Scratch::make(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (const Status made = make_directory(path); !made.ok()) return made;
  return Scratch(path);
}

Scratch::Scratch(Scratch&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }

Scratch::~Scratch() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

uint64_t Scratch::bytes() const {
  uint64_t total = 0;
  std::error_code error;
  // Files come and go while a download runs: one that vanished simply does not count.
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const uint64_t size = it->is_regular_file(gone) ? it->file_size(gone) : 0;
    if (!gone) total += size;
  }
  return total;
}

}  // namespace varve::cli
