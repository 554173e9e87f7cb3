#include "cli/window_file.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTitleBytes = 80, kNumberBytes = 4, kStreamHeaderBytes = 3;
constexpr size_t kWindowsAt = kTitleBytes + 2 * kNumberBytes, kOffsetsAt = kWindowsAt + kNumberBytes;

Result<std::string> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) return io_error(path.string() + " cannot be read");
  return bytes;
}

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

/// Offsets of the windows and of the end of the file.
Result<std::vector<size_t>> read_index(const fs::path& path, const std::string& bytes) {
  if (bytes.size() < kOffsetsAt || bytes.substr(0, 4) != "EC02")
    return corrupt(path.string() + " is no text in windows: it does not begin with EC02 and an index");
  const size_t windows = number_at(bytes, kWindowsAt);
  const size_t data_at = kOffsetsAt + (windows + 1) * kNumberBytes + kStreamHeaderBytes;
  if (windows == 0 || data_at > bytes.size())
    return corrupt(path.string() + ": an index of " + std::to_string(windows) + " windows does not fit " +
                   std::to_string(bytes.size()) + " bytes");
  std::vector<size_t> offsets;
  for (size_t i = 0; i <= windows; ++i) {
    offsets.push_back(number_at(bytes, kOffsetsAt + i * kNumberBytes));
    const size_t least = i == 0 ? data_at : offsets[i - 1];
    if (offsets.back() < least || offsets.back() > bytes.size())
      return corrupt(path.string() + ": window " + std::to_string(i) + " begins at byte " +
                     std::to_string(offsets.back()) + ", outside " + std::to_string(least) + " to " +
                     std::to_string(bytes.size()));
  }
  return offsets;
}

}  // namespace

Status unpack_windows(const fs::path& packed, const fs::path& plain, const ChildOptions& child) {
  const Result<std::string> bytes = read_bytes(packed);
  if (!bytes.ok()) return bytes.status();
  const Result<std::vector<size_t>> offsets = read_index(packed, *bytes);
  if (!offsets.ok()) return offsets.status();

  const size_t windows = offsets->size() - 1;
  const std::string header = bytes->substr(kOffsetsAt + offsets->size() * kNumberBytes, kStreamHeaderBytes);
  const auto window_file = [&](size_t i) { return child.directory / ("window" + std::to_string(i)); };
  std::vector<std::string> gzip = {"gzip", "-d"};
  for (size_t i = 0; i < windows; ++i) {
    gzip.push_back(window_file(i).string() + ".Z");
    std::ofstream stream(gzip.back(), std::ios::binary);
    stream << header << std::string_view(*bytes).substr((*offsets)[i], (*offsets)[i + 1] - (*offsets)[i]);
    if (!stream.flush()) return io_error(gzip.back() + " cannot be written");
  }
  if (const Status status = run_child(gzip, child); !status.ok()) return status;

  std::ofstream out(plain, std::ios::binary);
  for (size_t i = 0; i < windows; ++i) {
    const Result<std::string> window = read_bytes(window_file(i));
    if (!window.ok()) return window.status();
    out << *window;
  }
  if (!out.flush()) return io_error(plain.string() + " cannot be written");
  return {};
}

}  // namespace varve::cli
