#pragma once
// Token counts and documents, as generators and loaders see them: they know no model.

#include <functional>
#include <string>
#include <string_view>

namespace varve::eval {

/// Tokens of a text without any that a model adds on its own (begin of sequence).
using CountTokens = std::function<int(std::string_view)>;

/// A real text to ask about, or to hide needles in.
struct Document {
  std::string name;  ///< "jargon"
  std::string text;  ///< UTF-8
};

}  // namespace varve::eval
