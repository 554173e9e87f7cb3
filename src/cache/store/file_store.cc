#include "cache/store/file_store.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace varve::cache {
namespace {

std::string system_words(int error) { return std::generic_category().message(error); }

/// Bytes written or read until the end, an error or end of file; errno tells which.
size_t write_at(int file, const uint8_t* data, size_t bytes, size_t offset) {
  size_t done = 0;
  errno = 0;
  while (done < bytes) {
    const ssize_t n = pwrite(file, data + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

size_t read_at(int file, uint8_t* data, size_t bytes, size_t offset) {
  size_t done = 0;
  errno = 0;
  while (done < bytes) {
    const ssize_t n = pread(file, data + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::create(const std::string& directory, size_t limit_bytes) {
  std::string path = directory + "/varve-pages-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return io_error("disk store: no file can be made in " + directory + ": " + system_words(errno));
  if (unlink(path.c_str()) != 0) {
    const int error = errno;
    close(file);
    return io_error("disk store: the name " + path + " cannot be removed: " + system_words(error));
  }
  return std::unique_ptr<FileStore>(new FileStore(file, limit_bytes));
}

FileStore::~FileStore() { close(file_); }

Status FileStore::put(uint64_t key, std::span<const uint8_t> bytes) {
  erase(key);
  if (bytes.empty()) return invalid_argument("disk store: a value without bytes");
  const size_t end_before = extents_.end();
  const std::optional<size_t> offset = extents_.take(bytes.size());
  if (!offset) {
    ++stats_.full;
    return resource_exhausted("disk store: " + std::to_string(bytes.size()) + " bytes do not fit, " +
                              std::to_string(end_before) + " of " + std::to_string(limit_bytes_) + " are used");
  }
  const size_t written = write_at(file_, bytes.data(), bytes.size(), *offset);
  if (written != bytes.size()) {
    const int error = errno;
    extents_.give(*offset, bytes.size());
    shrink(std::max(end_before, *offset + bytes.size()));
    ++stats_.write_errors;
    return io_error("disk store: " + std::to_string(written) + " of " + std::to_string(bytes.size()) +
                    " bytes were written: " + system_words(error));
  }
  values_[key] = {*offset, bytes.size(), XXH3_64bits(bytes.data(), bytes.size())};
  bytes_ += bytes.size();
  ++stats_.puts;
  return {};
}

Status FileStore::get(uint64_t key, std::span<uint8_t> out) {
  const auto it = values_.find(key);
  if (it == values_.end()) return not_found("disk store: no value of key " + std::to_string(key));
  const Value& value = it->second;
  if (out.size() != value.bytes) {
    return invalid_argument("disk store: the value of key " + std::to_string(key) + " has " +
                            std::to_string(value.bytes) + " bytes, not " + std::to_string(out.size()));
  }
  const size_t read = read_at(file_, out.data(), out.size(), value.offset);
  if (read != out.size()) {
    const int error = errno;
    ++stats_.read_errors;
    return io_error("disk store: " + std::to_string(read) + " of " + std::to_string(out.size()) +
                    " bytes were read: " + (error != 0 ? system_words(error) : "the file ends there"));
  }
  if (XXH3_64bits(out.data(), out.size()) != value.checksum) {
    ++stats_.corrupt;
    return corrupt("disk store: the " + std::to_string(out.size()) + " bytes of key " + std::to_string(key) +
                   " at offset " + std::to_string(value.offset) + " do not have their checksum");
  }
  ++stats_.gets;
  return {};
}

void FileStore::erase(uint64_t key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return;
  const size_t end_before = extents_.end();
  extents_.give(it->second.offset, it->second.bytes);
  bytes_ -= it->second.bytes;
  values_.erase(it);
  shrink(end_before);
}

void FileStore::shrink(size_t end_before) {
  if (extents_.end() >= end_before) return;
  // A failure costs disk space until the file is closed, and a reader of a live value sees none of it.
  if (ftruncate(file_, static_cast<off_t>(extents_.end())) != 0) ++stats_.write_errors;
}

}  // namespace varve::cache
