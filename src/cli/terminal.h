#pragma once
// What is shown to a person at a terminal, and to nobody else: progress goes to stderr, and only when that is a
// terminal.

#include <chrono>
#include <cstdint>
#include <string>

namespace varve::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Whether colours on stdout are wanted: it is a terminal that has them and NO_COLOR is not set (no-color.org).
bool stdout_takes_colour();

struct TerminalSize {
  int columns = 80;
  int lines = 24;
};
/// Of the terminal on stdout; the defaults when it does not say.
TerminalSize stdout_size();

enum class Unit { kBytes, kTokens, kItems };

/// "12.3 MiB", "640 B".
std::string format_bytes(uint64_t bytes);
/// "8 s", "2:05", "1:02:05".
std::string format_duration(double seconds);

/// One progress line at most `columns` characters wide, e.g.
/// "smollm2-135m  [########        ]  52%  48.8 MiB / 93.8 MiB  21.0 MiB/s  0:02 left".
/// A total of 0 means that the end is unknown: no bar, no percentage, no time left.
/// @param elapsed_s seconds since `started_at` units were done; the rate counts only what was done since then
std::string render_progress(const std::string& label, uint64_t done, uint64_t total, uint64_t started_at,
                            double elapsed_s, Unit unit, int columns);

/// A progress line on stderr that repaints itself at most ten times a second. Silent unless stderr is a terminal.
/// Not thread-safe: one thread reports.
class Progress {
 public:
  /// @param started_at units that were there before (a resumed download); they do not count into the rate
  Progress(std::string label, uint64_t total, Unit unit, uint64_t started_at = 0);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done);
  /// Removes the line, so that whatever is printed next starts on a clean one.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  uint64_t total_;
  uint64_t started_at_;
  Unit unit_;
  bool enabled_;
  bool painted_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_paint_{};
};

}  // namespace varve::cli
