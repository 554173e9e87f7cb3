#pragma once
// Names and values that stand in a document: what a question about it can ask for.

#include <string>
#include <string_view>
#include <vector>

namespace varve::eval {

struct Entry {
  std::string name, value;
  size_t offset = 0;  ///< of the name, in the text
};

/// The entries of a text, in its order, each name once (the first counts) and white space within values as single
/// spaces. Known are `"code": "X"` followed by `"name": "Y"` (JSON), `#define NAME VALUE` on one line, a line
/// "0041;NAME;" (Unicode data), and a verse "Ge1:1 Text." Values longer than 200 bytes are no answers and are left out.
std::vector<Entry> find_entries(std::string_view text);

/// The text with each stretch of white space made one space, and none at its ends.
std::string single_spaced(std::string_view text);

}  // namespace varve::eval
