#include "engine/text_stream.h"

#include <algorithm>

namespace varve::engine {
namespace {

/// Length of the well-formed character at the front; 0 when malformed, -1 when it is cut off by the end.
int character_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char b = byte(0);
  if (b < 0x80) return 1;
  const int n = b >= 0xc2 && b <= 0xdf ? 2 : b >= 0xe0 && b <= 0xef ? 3 : b >= 0xf0 && b <= 0xf4 ? 4 : 0;
  if (n == 0) return 0;
  for (int i = 1; i < n; ++i) {
    if (static_cast<size_t>(i) >= s.size()) return -1;
    unsigned low = 0x80, high = 0xbf;
    if (i == 1) {  // overlong forms, surrogates and values past U+10FFFF show in the second byte
      if (b == 0xe0) low = 0xa0;
      if (b == 0xed) high = 0x9f;
      if (b == 0xf0) low = 0x90;
      if (b == 0xf4) high = 0x8f;
    }
    if (byte(static_cast<size_t>(i)) < low || byte(static_cast<size_t>(i)) > high) return 0;
  }
  return n;
}

/// Longest prefix that ends with a whole character; malformed bytes count as characters of their own.
size_t whole_characters(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const int n = character_length(text.substr(at));
    if (n < 0) break;
    at += static_cast<size_t>(std::max(n, 1));
  }
  return at;
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::string repaired(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const int n = character_length(text.substr(at));
    if (n > 0) {
      out += text.substr(at, static_cast<size_t>(n));
      at += static_cast<size_t>(n);
    } else {
      out += kReplacement;
      at += n < 0 ? text.size() - at : 1;
    }
  }
  return out;
}

}  // namespace

std::string TextStream::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t stop = std::string::npos;
  for (const std::string& s : stops_) {
    if (!s.empty()) stop = std::min(stop, held_.find(s));
  }
  if (stop != std::string::npos) {
    stopped_ = true;
    held_.resize(stop);
    std::string out = repaired(held_);
    held_.clear();
    return out;
  }
  size_t safe = held_.size();  // hold back the longest tail that a stop string could begin with
  for (const std::string& s : stops_) {
    for (size_t n = std::min(held_.size(), s.size()); n > 0; --n) {
      if (held_.compare(held_.size() - n, n, s, 0, n) == 0) {
        safe = std::min(safe, held_.size() - n);
        break;
      }
    }
  }
  safe = whole_characters(std::string_view(held_).substr(0, safe));
  std::string out = repaired(std::string_view(held_).substr(0, safe));
  held_.erase(0, safe);
  return out;
}

std::string TextStream::finish() {
  std::string out = stopped_ ? std::string() : repaired(held_);
  held_.clear();
  return out;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int n = character_length(text.substr(at));
    if (n <= 0) return at;
    at += static_cast<size_t>(n);
  }
  return std::string_view::npos;
}

}  // namespace varve::engine
