#include "eval/tasks/sentences.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace varve::eval {
namespace {

constexpr size_t kLongestSentence = 800;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return is_upper(c) || (c >= 'a' && c <= 'z'); }
/// Bytes of the closing quote or bracket that the text begins with; 0 when it begins with none.
size_t closing_bytes(std::string_view text) {
  for (const std::string_view mark : {"\"", "'", ")", "]", "\u201d", "\u2019"})
    if (text.substr(0, mark.size()) == mark) return mark.size();
  return 0;
}

/// What a sentence may begin with: a capital, a digit, an opening mark, or the first byte of a character beyond ASCII.
bool can_begin(char c) {
  return is_upper(c) || is_digit(c) || c == '"' || c == '\'' || c == '(' || c == '[' || c == '`' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// Whether the full stop at `stop` belongs to what is before it: an abbreviation, an initial, or the number of a list's
/// item, which stands at the beginning of the sentence.
bool is_no_end(std::string_view text, size_t sentence, size_t stop) {
  size_t begin = stop;
  while (begin > sentence && is_digit(text[begin - 1])) --begin;
  if (begin < stop && begin == sentence) return true;
  begin = stop;
  while (begin > 0 && (is_letter(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  const std::string_view word = text.substr(begin, stop - begin);
  if (word.size() == 1 && is_upper(word[0])) return true;  // an initial
  static constexpr std::array<std::string_view, 14> kKnown = {"Mr", "Mrs", "Ms",  "Dr",  "St", "Prof", "vs",
                                                              "cf", "e.g", "i.e", "etc", "No", "Fig",  "Vol"};
  return std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end();
}

/// The end of the sentence from `sentence` on whose last mark is at `mark`, before its white space; 0 when none ends.
size_t sentence_end(std::string_view text, size_t sentence, size_t mark) {
  if (text[mark] == '.' && is_no_end(text, sentence, mark)) return 0;
  size_t end = mark + 1;
  while (const size_t bytes = closing_bytes(text.substr(end))) end += bytes;
  size_t next = end;
  while (next < text.size() && is_space(text[next])) ++next;
  if (next == text.size()) return end;
  return next > end && can_begin(text[next]) ? end : 0;
}

/// Line ends in the white space [begin, end).
int64_t line_ends(std::string_view text, size_t begin, size_t end) {
  const std::string_view space = text.substr(begin, end - begin);
  return std::count(space.begin(), space.end(), '\n');
}

}  // namespace

std::vector<std::string_view> split_sentences(std::string_view text) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  const auto skip_space = [&](size_t at) {
    while (at < text.size() && is_space(text[at])) ++at;
    return at;
  };
  const auto cut = [&](size_t end) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  };
  for (size_t at = skip_space(0); at < text.size();) {
    if (is_space(text[at])) {
      const size_t next = skip_space(at);
      const int64_t lines = line_ends(text, at, next);
      if (lines >= 2 || (lines == 1 && at - begin >= kLongestSentence)) cut(next);
      at = next;
      continue;
    }
    const bool mark = text[at] == '.' || text[at] == '!' || text[at] == '?';
    if (const size_t end = mark ? sentence_end(text, begin, at) : 0; end != 0) {
      at = skip_space(end);
      cut(at);
    } else {
      ++at;
    }
  }
  if (begin < text.size()) cut(text.size());
  return pieces;
}

std::string_view trimmed(std::string_view piece) {
  while (!piece.empty() && is_space(piece.front())) piece.remove_prefix(1);
  while (!piece.empty() && is_space(piece.back())) piece.remove_suffix(1);
  return piece;
}

}  // namespace varve::eval
