#pragma once
// Whether a page deserves more directions than its energy asks for.

#include "content/words.h"
#include "varve/content.h"

namespace varve::content {

/// Whether the tokens from `page_begin` on hold numeric data (at least options.numeric_share of them have digits), a
/// formula (LaTeX, or mathematical characters), or a definition (an operator that defines, or a line that begins with a
/// word and a number as in "Theorem 3.1.").
bool is_formal(const ContentOptions& options, const Words& words, int page_begin);

}  // namespace varve::content
