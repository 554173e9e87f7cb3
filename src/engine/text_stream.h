#pragma once
// Token pieces in, text that is safe to show out: never half a UTF-8 character, never a stop string or its beginning.

#include <string>
#include <string_view>
#include <vector>

namespace varve::engine {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Appends a piece and returns what may be shown now. After a stop string: what came before it, then nothing.
  std::string push(std::string_view piece);
  /// The end: what was held back. Bytes that never became a character are replaced by U+FFFD.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

/// Byte offset of the first byte that is not part of well-formed UTF-8; npos when all is well.
size_t find_invalid_utf8(std::string_view text);

}  // namespace varve::engine
