#include "eval/run/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kIdentity = "eval.json";
constexpr const char* kItems = "items.jsonl";

Status system_error(const std::string& path) { return io_error(path + ": " + std::strerror(errno)); }

/// The whole file, which may be empty.
Result<std::string> read_whole(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return system_error(path);
  return text;
}

/// The first key whose value is not the same, with both values.
Status check_identity(const std::string& directory, const Json& there, const Json& here) {
  for (const auto& [key, value] : here.items()) {
    const Json was = there.contains(key) ? there.at(key) : Json();
    if (was == value) continue;
    return invalid_argument(directory + " holds an evaluation with " + key + " " + was.dump() + "; this command has " +
                            value.dump() + ": give another --out directory");
  }
  return {};
}

Status write_all(int file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path);
    text.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

Store::Store(Store&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::exchange(other.file_, -1)),
      records_(std::move(other.records_)),
      done_(std::move(other.done_)) {}

Store::~Store() {
  if (file_ >= 0) close(file_);
}

Result<Store> Store::open(const std::string& directory, const Json& identity) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return io_error("cannot make directory " + directory + ": " + error.message());
  Store store(directory);
  if (fs::exists(store.path(kIdentity))) {
    const auto text = read_whole(store.path(kIdentity));
    if (!text.ok()) return text.status();
    const Json there = Json::parse(*text, nullptr, false);
    if (!there.is_object()) return corrupt(store.path(kIdentity) + " is not the header of an evaluation");
    if (Status s = check_identity(directory, there, identity); !s.ok()) return s;
  } else {
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      return invalid_argument(directory + " holds " + entry.path().filename().string() +
                              " and is no evaluation's: give an empty or a new --out directory");
    }
    if (error) return io_error(directory + ": " + error.message());
    if (Status s = store.write(kIdentity, identity.dump(2) + "\n"); !s.ok()) return s;
  }
  const std::string items = store.path(kItems);
  store.file_ = ::open(items.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (store.file_ < 0) return system_error(items);
  if (flock(store.file_, LOCK_EX | LOCK_NB) != 0) {
    return io_error(items + (errno == EWOULDBLOCK ? ": another evaluation is writing to it"
                                                  : std::string(": ") + std::strerror(errno)));
  }
  if (Status s = store.read_lines(); !s.ok()) return s;
  return store;
}

Status Store::read_lines() {
  const std::string items = path(kItems);
  const auto text = read_whole(items);
  if (!text.ok()) return text.status();
  size_t begin = 0, line = 1;
  for (size_t end; (end = text->find('\n', begin)) != std::string::npos; begin = end + 1, ++line) {
    const Json json =
        Json::parse(text->begin() + std::ptrdiff_t(begin), text->begin() + std::ptrdiff_t(end), nullptr, false);
    auto record = json.is_discarded() ? Result<ItemRecord>(corrupt("not JSON")) : parse_record(json);
    if (!record.ok()) {
      return corrupt(items + ", line " + std::to_string(line) + ": " + record.status().message());
    }
    index(*record, records_.size());
    records_.push_back(std::move(*record));
  }
  // A line without its end was being written when the run was stopped.
  if (begin != text->size() && ftruncate(file_, static_cast<off_t>(begin)) != 0) return system_error(items);
  return {};
}

Result<bool> Store::has(const std::string& id, const ArmSpec& arm, const std::string& prompt_sha256) const {
  const auto found = done_.find({id, arm.name});
  if (found == done_.end()) return false;
  const ItemRecord& r = records_[found->second];
  if (r.profile_digest != arm.digest()) {
    return invalid_argument(directory_ + ": arm " + arm.name + " was run with profile " + r.profile_digest +
                            "; it is " + arm.digest() + " now: give another --out directory");
  }
  if (r.prompt_sha256 != prompt_sha256) {
    return invalid_argument(directory_ + ": item " + id + " had another prompt (" + r.prompt_sha256 + ", now " +
                            prompt_sha256 + "): give another --out directory");
  }
  return true;
}

Status Store::add(ItemRecord record) {
  if (Status s = write_all(file_, record_json(record).dump() + "\n", path(kItems)); !s.ok()) return s;
  // What a later run reads back is what this one goes on with.
  auto stored = parse_record(record_json(record));
  if (!stored.ok()) return stored.status();
  index(*stored, records_.size());
  records_.push_back(std::move(*stored));
  return {};
}

Status Store::write(const std::string& name, const std::string& text) const {
  const std::string partial = path(name + ".partial");
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return system_error(partial);
  Status s = write_all(file, text, partial);
  if (close(file) != 0 && s.ok()) s = system_error(partial);
  if (!s.ok()) return s;
  if (rename(partial.c_str(), path(name).c_str()) != 0) return system_error(path(name));
  return {};
}

}  // namespace varve::eval
