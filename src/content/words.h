#pragma once
// Words of a stretch of tokens: what is a name, what is a code, where lines and sentences end.

#include <span>
#include <vector>

#include "content/unicode.h"

namespace varve::content {

enum class WordKind : uint8_t {
  kPlain,
  kTitle,  ///< one capital, at its start, and more letters: perhaps a name
  kCode,   ///< digits, '-' or '_' inside, capitals after the first letter: cannot be guessed from its start
};

/// A span of letters with case, digits and the joiners between them, or, in scripts without case, of the letters that
/// one token holds: such scripts need not have spaces.
struct Word {
  int begin = 0, end = 0;  ///< tokens that hold a part of it; two words may share one
  WordKind kind = WordKind::kPlain;
  bool starts_sentence = false;
  int sentence = 0;   ///< words with equal numbers have no end of sentence or line between them
  uint64_t hash = 0;  ///< of the lower case of its first term
};

/// A part of a word between joiners: what a question and a text may have in common.
struct Term {
  int begin = 0, end = 0;
  int sentence = 0;
  uint64_t hash = 0;      ///< of its lower case
  bool lower = false;     ///< small letters of a script with case, nothing else
  bool complete = false;  ///< another character follows
};

struct Words {
  std::vector<Char> chars;
  std::vector<uint8_t> has_letter, has_digit;  ///< by token
  std::vector<Word> words;                     ///< in order
  std::vector<Term> terms;                     ///< in order
};

/// @param at_start the tokens are the first of their sequence: a sentence starts with them
Words read_words(std::span<const Token> tokens, bool at_start);

}  // namespace varve::content
