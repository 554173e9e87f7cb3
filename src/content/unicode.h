#pragma once
// Characters of a text that arrives in tokens, and what kind each is. A token may hold part of a character.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace varve::content {

/// One token of a sequence: its id and its bytes. Control tokens have no bytes.
struct Token {
  int32_t id = 0;
  std::string_view text;
};

enum class CharKind : uint8_t {
  kUpper,    ///< upper or title case, of scripts that have case
  kLower,    ///< lower case, of scripts that have case
  kLetter,   ///< a letter of a script without case
  kMark,     ///< combines with the character before it
  kDigit,    ///< a number in any script, full width included
  kJoiner,   ///< '-', '_' and their like: part of a code when letters or digits touch it
  kStop,     ///< ends a sentence: one of its own ('。') ...
  kDot,      ///< ... or '.', '!', '?', which end one only when no letter or digit follows at once
  kNewline,  ///< ends a line; also every control token
  kOther,    ///< other punctuation, symbols, white space, bytes that are no UTF-8
};

struct Char {
  char32_t code = 0;
  CharKind kind = CharKind::kOther;
  int first_token = 0, last_token = 0;  ///< those that hold its bytes
};

CharKind char_kind(char32_t code);
char32_t to_lower(char32_t code);
inline bool is_word(CharKind kind) { return kind <= CharKind::kDigit; }
inline bool is_cased(CharKind kind) { return kind == CharKind::kUpper || kind == CharKind::kLower; }

/// The characters of the joined texts. A byte that no UTF-8 character can take is a kOther of its own.
std::vector<Char> decode(std::span<const Token> tokens);

}  // namespace varve::content
