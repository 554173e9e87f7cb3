#include <cerrno>
#include <cstring>

#include "base/sha256.h"
#include "cli/child.h"
#include "cli/fetch.h"
#include "cli/fetch_internal.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/window_file.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

Status explain(const Status& failure, const std::string& doing) {
  if (failure.code() == StatusCode::kCancelled) return {StatusCode::kCancelled, "interrupted"};
  return {failure.code(), doing + ": " + failure.message()};
}

/// The package NAME_VERSION_ARCH.deb in `directory`, empty when there is none.
fs::path find_deb(const fs::path& directory, const std::string& package) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind(package + "_", 0) == 0 && entry.path().extension() == ".deb") return entry.path();
  }
  return {};
}

/// Unpacks the text's package, and the text when it is gzipped, below the scratch directory; returns the plain file.
Result<fs::path> unpack(const ManifestText& text, const FetchOptions& options, const Scratch& scratch) {
  Progress progress(text.key, 0, Unit::kBytes);
  const ChildOptions child{scratch.path(), scratch.path(), scratch.path() / "log", [&] {
                             progress.update(scratch.bytes());
                             return !interrupted();
                           }};
  if (options.packages.empty())
    if (const Status status = run_child({"apt-get", "download", "--quiet", text.package}, child); !status.ok())
      return explain(status, "downloading Debian package " + text.package + " (apt-get update may help)");
  const fs::path from = options.packages.empty() ? scratch.path() : options.packages;
  const fs::path deb = find_deb(from, text.package);
  if (deb.empty()) return not_found("no " + text.package + "_*.deb in " + from.string());

  const fs::path tree = scratch.path() / "tree";
  if (const Status status = run_child({"dpkg-deb", "-x", deb.string(), tree.string()}, child); !status.ok())
    return explain(status, "unpacking " + deb.filename().string());
  fs::path file = tree / text.member;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return corrupt(deb.filename().string() + " has no file " + text.member);
  if (text.packing == TextPacking::kWindows) {
    const fs::path plain = scratch.path() / "plain";
    if (const Status status = unpack_windows(file, plain, child); !status.ok())
      return explain(status, "unpacking " + text.member);
    return plain;
  }
  if (file.extension() == ".gz") {
    if (const Status status = run_child({"gzip", "-d", file.string()}, child); !status.ok())
      return explain(status, "unpacking " + text.member);
    file.replace_extension();
  }
  return file;
}

Result<std::string> hash_of(const fs::path& file) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  if (error) return io_error(file.string() + ": " + error.message());
  return sha256_of_file(file, 0, size);
}

}  // namespace

Result<std::string> fetch_text(const ManifestText& text, const FetchOptions& given) {
  const FetchOptions options = absolute(given);
  const fs::path destination = options.directory / text.file;
  if (is_fetched(destination, text.bytes)) {
    const Result<std::string> hash = hash_of(destination);
    if (!hash.ok()) return hash.status();
    if (*hash == text.sha256) return destination.string();
  }
  if (const Status status = make_directory(options.directory); !status.ok()) return status;
  Result<Scratch> scratch = Scratch::make(options.directory / ("." + text.file + ".download"));
  if (!scratch.ok()) return scratch.status();
  const Result<fs::path> file = unpack(text, options, *scratch);
  if (!file.ok()) return file.status();
  const Result<std::string> hash = hash_of(*file);
  if (!hash.ok()) return hash.status();
  if (*hash != text.sha256)
    return corrupt(text.member + " of the Debian package " + text.package + " has SHA-256 " + *hash + ", expected " +
                   text.sha256 + ": this Debian release ships another version of the text");
  if (rename(file->c_str(), destination.c_str()) != 0)
    return io_error(destination.string() + ": " + std::strerror(errno));
  return destination.string();
}

}  // namespace varve::cli
