#pragma once
// Where the sentences of a prose text end.

#include <string_view>
#include <vector>

namespace varve::eval {

/// The text cut after each sentence and each paragraph. The pieces follow one another without a gap, so that together
/// they are the text; white space belongs to the piece before it. A sentence ends with ., ! or ?, perhaps a closing
/// quote or bracket, white space, and something that can begin a sentence; not after an initial or an abbreviation.
/// Where no sentence ends for 800 bytes (tables, code), the next line's end is a cut.
std::vector<std::string_view> split_sentences(std::string_view text);

/// The piece without the white space around it.
std::string_view trimmed(std::string_view piece);

}  // namespace varve::eval
