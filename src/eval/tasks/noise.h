#pragma once
// RULER's meaningless haystack.

#include <string_view>
#include <vector>

namespace varve::eval {

/// So many times the one line that it repeats.
inline std::vector<std::string_view> noise_lines(int count) {
  static constexpr std::string_view kLine =
      "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n";
  return std::vector<std::string_view>(static_cast<size_t>(count), kLine);
}

}  // namespace varve::eval
