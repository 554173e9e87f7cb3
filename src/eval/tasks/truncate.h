#pragma once
// A document that loses its middle.

#include <string>

#include "eval/tasks/text_tokens.h"

namespace varve::eval {

struct Truncated {
  std::string text;
  int dropped_tokens = 0;  ///< 0: the text is whole
};

/// At most `tokens` tokens of the text: all of it, or as much from its beginning as from its end, cut between UTF-8
/// characters, about half the tokens each (LongBench's rule).
Truncated truncate_middle(std::string_view text, int tokens, const CountTokens& count);

}  // namespace varve::eval
