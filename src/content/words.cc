#include "content/words.h"

#include <algorithm>

namespace varve::content {
namespace {

/// Words in capitals side by side from which on they are a way of writing, not codes.
constexpr size_t kShoutedWords = 4;

constexpr uint64_t kFnvOffset = 14695981039346656037ULL, kFnvPrime = 1099511628211ULL;

bool is_underscore(char32_t code) { return code == '_' || code == 0xFF3F; }
/// Stands inside a word that has case.
bool continues(CharKind kind) { return is_cased(kind) || kind == CharKind::kDigit || kind == CharKind::kMark; }

class WordReader {
 public:
  WordReader(std::span<const Token> tokens, bool at_start) : starts_sentence_(at_start) {
    out_.chars = decode(tokens);
    out_.has_letter.resize(tokens.size());
    out_.has_digit.resize(tokens.size());
  }

  Words read() {
    mark_tokens();
    for (size_t i = 0; i < size();) i = step(i);
    unshout();
    return std::move(out_);
  }

 private:
  size_t size() const { return out_.chars.size(); }
  const Char& at(size_t i) const { return out_.chars[i]; }
  CharKind kind(size_t i) const { return i < size() ? at(i).kind : CharKind::kOther; }

  void mark_tokens() {
    for (const Char& c : out_.chars) {
      if (!is_word(c.kind)) continue;
      std::vector<uint8_t>& flags = c.kind == CharKind::kDigit ? out_.has_digit : out_.has_letter;
      for (int t = c.first_token; t <= c.last_token; ++t) flags[static_cast<size_t>(t)] = 1;
    }
  }

  void end_sentence() {
    ++sentence_;
    starts_sentence_ = true;
  }

  /// Reads what begins at character i; where to go on.
  size_t step(size_t i) {
    switch (kind(i)) {
      case CharKind::kNewline:
      case CharKind::kStop: end_sentence(); return i + 1;
      case CharKind::kDot:
        if (!is_word(kind(i + 1))) end_sentence();
        return i + 1;
      case CharKind::kOther: return i + 1;
      case CharKind::kJoiner: {
        size_t first = i;
        while (kind(i) == CharKind::kJoiner) ++i;
        const bool identifier = is_underscore(at(i - 1).code) && continues(kind(i));
        const bool minus = i - first == 1 && kind(i) == CharKind::kDigit;
        return identifier || minus ? read_cased(first, i) : i;
      }
      case CharKind::kLetter:
      case CharKind::kMark: return read_uncased(i);
      case CharKind::kUpper:
      case CharKind::kLower:
      case CharKind::kDigit: return read_cased(i, i);
    }
    return i + 1;
  }

  Word new_word(size_t begin, size_t end) {
    Word word;
    word.begin = at(begin).first_token;
    word.end = at(end - 1).last_token + 1;
    word.starts_sentence = starts_sentence_;
    word.sentence = sentence_;
    starts_sentence_ = false;
    return word;
  }

  Term add_term(size_t begin, size_t end) {
    Term term;
    term.begin = at(begin).first_token;
    term.end = at(end - 1).last_token + 1;
    term.sentence = sentence_;
    term.hash = kFnvOffset;
    term.lower = true;
    for (size_t i = begin; i < end; ++i) {
      term.hash = (term.hash ^ to_lower(at(i).code)) * kFnvPrime;
      term.lower &= kind(i) == CharKind::kLower || kind(i) == CharKind::kMark;
    }
    // The first bytes of a character decode to 0 until the others come.
    term.complete = end < size() && at(end).code != 0;
    out_.terms.push_back(term);
    return term;
  }

  size_t read_uncased(size_t begin) {
    size_t end = begin + 1;
    while (kind(end) == CharKind::kMark ||
           (kind(end) == CharKind::kLetter && at(end).first_token == at(begin).last_token)) {
      ++end;
    }
    Word word = new_word(begin, end);
    word.hash = add_term(begin, end).hash;
    out_.words.push_back(word);
    is_capitals_.push_back(false);
    return end;
  }

  /// [begin, first): joiners before the first letter or digit.
  size_t read_cased(size_t begin, size_t first) {
    bool joined = first > begin, digits = false, late_capital = false, small = false;
    uint64_t hash = 0;
    size_t end = first, capitals = 0, characters = 0;
    while (true) {
      const size_t term_begin = end;
      for (; continues(kind(end)); ++end, ++characters) {
        digits |= kind(end) == CharKind::kDigit;
        small |= kind(end) == CharKind::kLower;
        if (kind(end) == CharKind::kUpper) {
          ++capitals;
          late_capital |= end > term_begin;
        }
      }
      const Term term = add_term(term_begin, end);
      if (hash == 0) hash = term.hash;
      size_t next = end;
      while (is_underscore(at_or(next))) ++next;
      if (next == end && kind(end) == CharKind::kJoiner) ++next;
      if (next == end || !continues(kind(next))) break;
      joined = true;
      end = next;
    }
    Word word = new_word(begin, end);
    word.hash = hash;
    if (digits || joined || late_capital) {
      word.kind = WordKind::kCode;
    } else if (capitals == 1 && characters > 1) {
      word.kind = WordKind::kTitle;
    }
    out_.words.push_back(word);
    is_capitals_.push_back(capitals > 0 && !small && !digits && !joined);
    return end;
  }

  char32_t at_or(size_t i) const { return i < size() ? at(i).code : 0; }

  /// Sentences in capitals hold no codes: nothing in them stands out.
  void unshout() {
    for (size_t begin = 0; begin < out_.words.size();) {
      size_t end = begin;
      while (end < out_.words.size() && is_capitals_[end] && out_.words[end].sentence == out_.words[begin].sentence) {
        ++end;
      }
      if (end - begin >= kShoutedWords) {
        for (size_t i = begin; i < end; ++i) out_.words[i].kind = WordKind::kPlain;
      }
      begin = std::max(end, begin + 1);
    }
  }

  Words out_;
  std::vector<bool> is_capitals_;  // by word: capital letters alone, be it one
  int sentence_ = 0;
  bool starts_sentence_;
};

}  // namespace

Words read_words(std::span<const Token> tokens, bool at_start) { return WordReader(tokens, at_start).read(); }

}  // namespace varve::content
