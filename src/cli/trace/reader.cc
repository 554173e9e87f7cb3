#include "cli/trace/reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace varve::cli {

Result<TraceReader> TraceReader::open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return not_found(path + ": No such file or directory");
  if (error) return io_error(path + ": " + error.message());
  if (status.type() != fs::file_type::regular) {
    return unsupported(path + " is not a regular file; a trace is read twice, so it cannot be a directory or a pipe");
  }
  TraceReader reader;
  reader.path_ = path;
  reader.file_bytes_ = fs::file_size(path, error);
  errno = 0;
  reader.file_.open(path, std::ios::binary);
  if (error || !reader.file_) return io_error(path + ": " + (error ? error.message() : std::strerror(errno)));
  reader.buffer_.resize(kMaxTraceLineBytes + 1);
  const auto first = reader.read_line();
  if (!first.ok()) return first.status();
  if (!*first) return corrupt(path + " is empty: it holds no trace");
  auto header = parse_trace_header(reader.text_);
  if (header.ok()) {
    reader.header_ = std::move(*header);
  } else if (header.status().code() == StatusCode::kNotFound) {
    reader.pending_ = true;
  } else {
    return reader.at_line(header.status().message());
  }
  return reader;
}

Result<bool> TraceReader::next(TraceEvent* event) {
  if (!pending_) {
    const auto more = read_line();
    if (!more.ok() || !*more) return more;
  }
  pending_ = false;
  const auto error = parse_trace_line(text_, event);
  if (!error) {
    ++events_;
    return true;
  }
  // Without anything read before it, the end is missing from a file that need not be a trace at all.
  if (error->cut && !terminated_ && (header_.present || events_ > 0)) {
    cut_ = true;
    return false;
  }
  if (header_.present && parse_trace_header(text_).ok()) return at_line("a second header; a trace holds one run");
  return at_line(error->message);
}

/// Puts the next line that is not blank into text_; false at the end.
Result<bool> TraceReader::read_line() {
  do {
    if (file_.eof()) return false;
    errno = 0;
    file_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto count = static_cast<size_t>(file_.gcount());
    if (file_.bad()) return io_error(path_ + ": " + (errno != 0 ? std::strerror(errno) : "reading failed"));
    if (file_.eof() && count == 0) return false;
    ++line_;
    bytes_ += count;
    if (file_.fail() && !file_.eof()) {
      return at_line("longer than " + std::to_string(kMaxTraceLineBytes) + " bytes");
    }
    terminated_ = !file_.eof();
    text_ = std::string_view(buffer_.data(), terminated_ ? count - 1 : count);
  } while (text_.find_first_not_of(" \t\r") == std::string_view::npos);
  return true;
}

Status TraceReader::at_line(const std::string& message) const {
  return corrupt(path_ + ": line " + std::to_string(line_) + ": " + message);
}

}  // namespace varve::cli
