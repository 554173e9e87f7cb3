#pragma once
// printf into a string, for tables.

#include <cstdio>
#include <string>

namespace varve::cli {

/// At most 255 bytes; more are cut.
template <typename... Args>
std::string format_text(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

}  // namespace varve::cli
