#pragma once
// Lines from stdin for a conversation: a Ctrl-C while waiting is an answer of its own, not the end of the program.

#include <string>

namespace varve::cli {

class LineInput {
 public:
  enum class Event { kLine, kEnd, kInterrupted };

  /// fd: read from here until its end.
  explicit LineInput(int fd) : fd_(fd) {}

  /// Waits for a line and stores it without its line break. kInterrupted when interrupted() became true; the flag is
  /// left for the caller to clear, and what was typed so far is dropped. A last line without a break counts.
  /// After kEnd a terminal may be asked again (Ctrl-D ends one input); a pipe then answers kEnd for good.
  Event next(std::string& line);

 private:
  int fd_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace varve::cli
