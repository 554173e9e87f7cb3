#include "model/gguf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "model/ggml_guard.h"

namespace varve::model {
namespace {

bool read_exactly(int fd, uint64_t offset, void* out, size_t bytes) {
  auto* p = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const ssize_t n = pread(fd, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

/// Feeds ggml's parser, which asks for a few bytes at a time, from a window of the file.
struct Window {
  int fd;
  uint64_t file_bytes;
  uint64_t begin = 0;
  std::vector<uint8_t> bytes;

  static size_t read(void* self, void* out, uint64_t offset, size_t n) {
    auto& w = *static_cast<Window*>(self);
    if (offset >= w.file_bytes) return 0;
    n = static_cast<size_t>(std::min<uint64_t>(n, w.file_bytes - offset));
    if (offset < w.begin || offset + n > w.begin + w.bytes.size()) {
      constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
      if (n > kWindowBytes) return read_exactly(w.fd, offset, out, n) ? n : 0;
      w.begin = offset;
      w.bytes.resize(static_cast<size_t>(std::min(kWindowBytes, w.file_bytes - offset)));
      if (!read_exactly(w.fd, offset, w.bytes.data(), w.bytes.size())) {
        w.bytes.clear();
        return 0;
      }
    }
    std::memcpy(out, w.bytes.data() + (offset - w.begin), n);
    return n;
  }
};

}  // namespace

GgufFile::Descriptor& GgufFile::Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

GgufFile::Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  file.fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd_.get() < 0) {
    const std::string reason = path + ": " + std::strerror(errno);
    return errno == ENOENT ? not_found(reason) : io_error(reason);
  }
  struct stat info {};
  if (fstat(file.fd_.get(), &info) != 0) return io_error(path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + " is not a regular file");
  file.bytes_ = static_cast<uint64_t>(info.st_size);

  uint8_t magic[4] = {};
  if (file.bytes_ < sizeof(magic)) {
    return corrupt(path + ": " + std::to_string(file.bytes_) + " bytes are too few for a GGUF file");
  }
  if (!read_exactly(file.fd_.get(), 0, magic, sizeof(magic))) return io_error(path + ": cannot read the first 4 bytes");
  if (std::memcmp(magic, GGUF_MAGIC, sizeof(magic)) != 0) return corrupt(path + " is not a GGUF file (wrong magic)");

  const Status parsed = guarded(path, [&] {
    Window window{file.fd_.get(), file.bytes_, 0, {}};
    const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/nullptr};
    file.context_.reset(gguf_init_from_callback(&Window::read, &window, /*max_chunk_read=*/0,
                                                std::min(file.bytes_, kMostHeaderBytes), params));
    if (file.context_ != nullptr) return Status();
    const std::string log = guarded_log();
    return corrupt(path + " (" + std::to_string(file.bytes_) +
                   " bytes): " + (log.empty() ? "the header ends before its metadata" : log));
  });
  if (!parsed.ok()) return parsed;
  if (Status s = file.check_tensors_within_file(); !s.ok()) return s;
  return file;
}

uint64_t GgufFile::data_offset() const { return gguf_get_data_offset(context_.get()); }

Status GgufFile::check_tensors_within_file() const {
  // libllama maps the file and wraps the mapped range in a CPU buffer, which must start on a 32-byte boundary.
  const size_t alignment = gguf_get_alignment(context_.get());
  if (alignment % GGUF_DEFAULT_ALIGNMENT != 0) {
    return unsupported(path_ + ": general.alignment is " + std::to_string(alignment) + ", not a multiple of " +
                       std::to_string(GGUF_DEFAULT_ALIGNMENT));
  }
  for (int64_t i = 0; i < gguf_get_n_tensors(context_.get()); ++i) {
    const uint64_t size = gguf_get_tensor_size(context_.get(), i);
    const uint64_t begin = data_offset() + gguf_get_tensor_offset(context_.get(), i);
    if (begin > bytes_ || size > bytes_ - begin) {
      return corrupt(path_ + " is truncated: tensor " + gguf_get_tensor_name(context_.get(), i) + " claims bytes " +
                     std::to_string(begin) + " to " + std::to_string(begin + size) + ", the file has " +
                     std::to_string(bytes_));
    }
  }
  return Status();
}

Status GgufFile::read(uint64_t offset, std::span<uint8_t> out) const {
  if (read_exactly(fd_.get(), offset, out.data(), out.size())) return Status();
  return io_error(path_ + ": cannot read " + std::to_string(out.size()) + " bytes at " + std::to_string(offset));
}

int64_t GgufFile::find(const std::string& key) const { return gguf_find_key(context_.get(), key.c_str()); }

bool GgufFile::has(const std::string& key) const { return find(key) >= 0; }

Status GgufFile::typed(const std::string& key, gguf_type type, bool required, int64_t* id) const {
  *id = find(key);
  if (*id < 0) return required ? corrupt(path_ + ": metadata key " + key + " is missing") : Status();
  const gguf_type actual = gguf_get_kv_type(context_.get(), *id);
  if (actual == type) return Status();
  return corrupt(path_ + ": metadata key " + key + " has type " + gguf_type_name(actual) + ", expected " +
                 gguf_type_name(type));
}

Status GgufFile::get(const std::string& key, uint32_t* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_UINT32, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_u32(context_.get(), id);
  return Status();
}

Status GgufFile::get(const std::string& key, uint16_t* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_UINT16, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_u16(context_.get(), id);
  return Status();
}

Status GgufFile::get(const std::string& key, int32_t* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_INT32, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_i32(context_.get(), id);
  return Status();
}

Status GgufFile::get(const std::string& key, float* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_FLOAT32, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_f32(context_.get(), id);
  return Status();
}

Status GgufFile::get(const std::string& key, bool* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_BOOL, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_bool(context_.get(), id);
  return Status();
}

Status GgufFile::get(const std::string& key, std::string* out, bool required) const {
  int64_t id = -1;
  if (Status s = typed(key, GGUF_TYPE_STRING, required, &id); !s.ok() || id < 0) return s;
  *out = gguf_get_val_str(context_.get(), id);
  return Status();
}

gguf_type GgufFile::array_type(const std::string& key) const {
  const int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(context_.get(), id) != GGUF_TYPE_ARRAY) return GGUF_TYPE_COUNT;
  return gguf_get_arr_type(context_.get(), id);
}

size_t GgufFile::array_size(const std::string& key) const {
  return array_type(key) == GGUF_TYPE_COUNT ? 0 : gguf_get_arr_n(context_.get(), find(key));
}

}  // namespace varve::model
