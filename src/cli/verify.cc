#include "cli/verify.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

/// What the file was when its bytes were read; ctime cannot be set back the way mtime can.
std::string fingerprint(const ManifestModel& model, const fs::path& file) {
  struct stat info;
  if (stat(file.c_str(), &info) != 0) return "";
  return model.sha256 + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_ino) + " " +
         std::to_string(info.st_ctim.tv_sec) + "." + std::to_string(info.st_ctim.tv_nsec) + "\n";
}

std::string read_note(const fs::path& note) {
  std::ifstream in(note);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Status verify_model(const ManifestModel& model, const fs::path& file) {
  const fs::path note = file.string() + ".verified";
  const std::string before = fingerprint(model, file);
  if (!before.empty() && read_note(note) == before) return {};

  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  const std::string repair = "; varve pull " + model.key + " repairs it";
  if (!error && size != model.bytes)
    return corrupt(file.string() + " has " + std::to_string(size) + " bytes, expected " + std::to_string(model.bytes) +
                   repair);
  Progress progress(model.key + " checking", model.bytes, Unit::kBytes);
  uint64_t read = 0;
  const Result<std::string> hash = sha256_of_file(file, 0, model.bytes, [&](uint64_t bytes) {
    progress.update(read += bytes);
    return !interrupted();
  });
  if (!hash.ok()) return hash.status();
  if (*hash != model.sha256)
    return corrupt(file.string() + " has SHA-256 " + *hash + ", expected " + model.sha256 + repair);
  std::ofstream(note, std::ios::trunc) << before;  // a failure only costs the next call its time
  return {};
}

}  // namespace varve::cli
