#pragma once
// Numbers as a report shows them.

#include <cmath>
#include <cstdio>
#include <string>

namespace varve::eval {

/// printf into a string, at most 511 bytes.
template <typename... Args>
std::string print(const char* format, Args... args) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

/// Three significant digits of a divergence; exactly nothing is "0".
inline std::string print_kl(double v) { return v == 0 ? "0" : print("%.3g", v); }

/// "8K", "4096".
inline std::string print_length(int tokens) {
  return tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "K" : std::to_string(tokens);
}

}  // namespace varve::eval
