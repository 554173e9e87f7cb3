#pragma once
// A document and a tokenizer that need no files.

#include <cctype>
#include <string>
#include <string_view>

#include "eval/random.h"
#include "eval/tasks/text_tokens.h"

namespace varve::eval::testing {

/// Five letters, one digit, or one other character a token; a space counts with what follows it.
inline int count_pieces(std::string_view text) {
  int tokens = 0;
  size_t letters = 0;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter && letters++ % 5 != 0) continue;
    if (!letter) letters = 0;
    tokens += c != ' ';
  }
  return tokens;
}

/// Prose of random syllables: sentences of 6 to 18 words, paragraphs of a few sentences, lines of some 70 bytes.
inline Document made_document(const std::string& name, int sentences) {
  const char* syllables[] = {"ba", "ker", "lo", "min", "ta", "ru", "sel", "vo", "ni", "dra", "pe", "sha", "gol", "wi"};
  Random random = Random::named(1, name);
  Document document{name, ""};
  size_t line = 0;
  for (int s = 0; s < sentences; ++s) {
    const int64_t words = random.between(6, 18);
    for (int64_t w = 0; w < words; ++w) {
      std::string word;
      for (int64_t n = random.between(1, 4); n > 0; --n) word += syllables[random.below(std::size(syllables))];
      if (w == 0) word[0] = static_cast<char>(std::toupper(word[0]));
      document.text += word;
      line += word.size() + 1;
      if (w + 1 < words) document.text += line > 70 ? '\n' : ' ';
      if (line > 70) line = 0;
    }
    document.text += random.below(6) == 0 ? ".\n\n" : ". ";
  }
  return document;
}

}  // namespace varve::eval::testing
