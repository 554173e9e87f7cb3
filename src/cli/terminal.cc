#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace varve::cli {
namespace {

constexpr int kBarCells = 24;
constexpr int kFewestBarCells = 6;          // fewer say less than the percentage beside them
constexpr double kSecondsBeforeRate = 0.5;  // a rate over less time than this is noise

template <typename... Args>
std::string print(const char* format, Args... args) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

std::string format_amount(uint64_t n, Unit unit) {
  switch (unit) {
    case Unit::kBytes: return format_bytes(n);
    case Unit::kTokens: return std::to_string(n) + " tok";
    case Unit::kItems: return std::to_string(n);
  }
  return std::to_string(n);
}

std::string format_rate(double per_second, Unit unit) {
  switch (unit) {
    case Unit::kBytes: return format_bytes(static_cast<uint64_t>(per_second)) + "/s";
    case Unit::kTokens: return print("%.0f tok/s", per_second);
    case Unit::kItems: return print("%.1f/s", per_second);
  }
  return "";
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

bool stdout_takes_colour() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return stdout_is_terminal() && !dumb && (refused == nullptr || *refused == '\0');
}

TerminalSize stdout_size() {
  winsize size{};
  TerminalSize out;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return out;
  if (size.ws_col > 0) out.columns = size.ws_col;
  if (size.ws_row > 0) out.lines = size.ws_row;
  return out;
}

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t i = 0;
  while (value >= 1023.95 && i + 1 < std::size(kNames)) {  // 1023.95 would print as 1024.0
    value /= 1024;
    ++i;
  }
  return print("%.1f %s", value, kNames[i]);
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return print("%d s", static_cast<int>(whole));
  const int s = static_cast<int>(whole % 60);
  const int m = static_cast<int>(whole / 60 % 60);
  const auto h = static_cast<long long>(whole / 3600);
  return h > 0 ? print("%lld:%02d:%02d", h, m, s) : print("%d:%02d", m, s);
}

std::string render_progress(const std::string& label, uint64_t done, uint64_t total, uint64_t started_at,
                            double elapsed_s, Unit unit, int columns) {
  const uint64_t fresh = done > started_at ? done - started_at : 0;
  const double rate = elapsed_s >= kSecondsBeforeRate ? static_cast<double>(fresh) / elapsed_s : 0;
  if (total > 0) done = std::min(done, total);
  std::string amounts = "  " + format_amount(done, unit);
  if (total > 0) amounts += " / " + format_amount(total, unit);
  if (rate > 0) amounts += "  " + format_rate(rate, unit);
  if (rate > 0 && total > 0) amounts += "  " + format_duration(static_cast<double>(total - done) / rate) + " left";

  std::string line = label;
  if (total > 0) {
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    const std::string percent = print("  %3d%%", static_cast<int>(fraction * 100));
    const int room = columns - static_cast<int>(label.size() + percent.size() + amounts.size() + 4);
    const int cells = std::min(room, kBarCells);  // the bar takes what the words leave
    if (cells >= kFewestBarCells) {
      const int filled = static_cast<int>(fraction * cells);
      line += "  [" + std::string(filled, '#') + std::string(cells - filled, ' ') + "]";
    }
    line += percent;
  }
  line += amounts;
  if (columns > 0 && line.size() > static_cast<size_t>(columns)) line.resize(columns);
  return line;
}

Progress::Progress(std::string label, uint64_t total, Unit unit, uint64_t started_at)
    : label_(std::move(label)), total_(total), started_at_(started_at), unit_(unit), enabled_(stderr_is_terminal()) {}

void Progress::update(uint64_t done) {
  if (!enabled_) return;
  const auto now = Clock::now();
  if (painted_ && now - last_paint_ < std::chrono::milliseconds(100)) return;
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  // One column stays free: a line that fills the last one wraps on some terminals.
  const std::string line = render_progress(label_, done, total_, started_at_, elapsed_s, unit_, terminal_columns() - 1);
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  painted_ = true;
  last_paint_ = now;
}

void Progress::clear() {
  if (!painted_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  painted_ = false;
}

}  // namespace varve::cli
