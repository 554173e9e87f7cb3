#pragma once
// A trace file, line by line: only one line is in memory, and no line may be longer than kMaxTraceLineBytes.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "cli/trace/event.h"

namespace varve::cli {

inline constexpr size_t kMaxTraceLineBytes = 64 * 1024;

class TraceReader {
 public:
  /// Opens the file and reads its header, if it has one. kNotFound: no such file; kUnsupported: not a regular file (a
  /// trace is read twice); kIoError: the system refused; kCorrupt: empty, or a header with bad values.
  static Result<TraceReader> open(const std::string& path);

  /// The next event; false at the end. kCorrupt names the line and says what is wrong with it. Blank lines are skipped.
  Result<bool> next(TraceEvent* event);

  const TraceHeader& header() const { return header_; }
  /// Of the line read last, from 1.
  uint64_t line() const { return line_; }
  /// Read so far, of file_bytes.
  uint64_t bytes() const { return bytes_; }
  uint64_t file_bytes() const { return file_bytes_; }
  /// Whether the file ended inside a line, which was left out: the process that wrote it was killed.
  bool cut() const { return cut_; }

 private:
  Result<bool> read_line();
  Status at_line(const std::string& message) const;

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;
  std::string_view text_;    ///< the line in buffer_
  bool terminated_ = false;  ///< whether a line break followed it
  bool pending_ = false;     ///< text_ is an event that next() has not returned
  TraceHeader header_;
  uint64_t line_ = 0, bytes_ = 0, file_bytes_ = 0, events_ = 0;
  bool cut_ = false;
};

}  // namespace varve::cli
