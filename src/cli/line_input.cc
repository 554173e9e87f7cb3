#include "cli/line_input.h"

#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace varve::cli {
namespace {

// A signal between the question and the wait would otherwise go unnoticed until the next key.
constexpr int kPollMilliseconds = 100;

}  // namespace

LineInput::Event LineInput::next(std::string& line) {
  while (true) {
    if (interrupted()) {
      buffer_.clear();
      return Event::kInterrupted;
    }
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos || (ended_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Event::kLine;
    }
    if (ended_) {
      ended_ = false;  // a terminal goes on after Ctrl-D; a pipe says its end again
      return Event::kEnd;
    }
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, kPollMilliseconds) <= 0) continue;
    char bytes[4096];
    const ssize_t n = read(fd_, bytes, sizeof(bytes));
    if (n > 0) buffer_.append(bytes, static_cast<size_t>(n));
    // At a terminal Ctrl-D ends one read; an interrupted read is told apart by its flag above.
    if (n == 0) ended_ = true;
    if (n < 0 && !interrupted()) ended_ = true;
  }
}

}  // namespace varve::cli
