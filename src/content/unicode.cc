#include "content/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace varve::content {
namespace {

/// Ends of sentences in scripts that put no space, or not only a space, after them: Armenian, Arabic, Devanagari,
/// Myanmar, Ethiopic, Khmer, Mongolian, Tibetan, ellipses, CJK and their other widths.
constexpr std::array<char32_t, 28> kStops = {
    0x0589, 0x061D, 0x061F, 0x06D4, 0x0700, 0x0964, 0x0965, 0x0F0D, 0x104A, 0x104B, 0x1362, 0x1367, 0x17D4, 0x17D5,
    0x1803, 0x1809, 0x2026, 0x203C, 0x203D, 0x2047, 0x2048, 0x2049, 0x3002, 0xFE52, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61};
static_assert(std::is_sorted(kStops.begin(), kStops.end()));

CharKind look_up(char32_t code) {
  switch (code) {
    case '\n':
    case '\r':
    case '\v':
    case '\f':
    case 0x85:
    case 0x2028:
    case 0x2029: return CharKind::kNewline;
    case '.':
    case '!':
    case '?': return CharKind::kDot;
    case '-':
    case '_':
    case 0x2010:  // hyphen
    case 0x2011:  // non-breaking hyphen
    case 0xFF0D:  // full-width hyphen-minus
    case 0xFF3F:  // full-width low line
      return CharKind::kJoiner;
    default: break;
  }
  if (std::binary_search(kStops.begin(), kStops.end(), code)) return CharKind::kStop;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return CharKind::kUpper;
    case UTF8PROC_CATEGORY_LL: return CharKind::kLower;
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_LM: return CharKind::kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CharKind::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharKind::kDigit;
    default: return CharKind::kOther;
  }
}

/// Most of most texts.
const std::array<CharKind, 128>& ascii_kinds() {
  static const std::array<CharKind, 128> kinds = [] {
    std::array<CharKind, 128> out{};
    for (size_t code = 0; code < out.size(); ++code) out[code] = look_up(static_cast<char32_t>(code));
    return out;
  }();
  return kinds;
}

/// The bytes of all tokens, and the token of each.
struct Bytes {
  std::vector<uint8_t> bytes;
  std::vector<int> tokens;
};

}  // namespace

CharKind char_kind(char32_t code) { return code < 128 ? ascii_kinds()[code] : look_up(code); }

char32_t to_lower(char32_t code) {
  if (code < 128) return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

std::vector<Char> decode(std::span<const Token> tokens) {
  std::vector<Char> out;
  Bytes pending;  // of tokens since the last control token: a character never crosses one
  const auto flush = [&] {
    const auto& [bytes, owner] = pending;
    const auto size = static_cast<utf8proc_ssize_t>(bytes.size());
    for (utf8proc_ssize_t i = 0; i < size;) {
      utf8proc_int32_t code = bytes[static_cast<size_t>(i)];
      utf8proc_ssize_t length = 1;
      if (code >= 0x80) length = utf8proc_iterate(bytes.data() + i, size - i, &code);
      Char c;
      c.first_token = owner[static_cast<size_t>(i)];
      if (length > 0) {
        c.code = static_cast<char32_t>(code);
        c.kind = char_kind(c.code);
      } else {
        length = 1;
      }
      c.last_token = owner[static_cast<size_t>(i + length - 1)];
      out.push_back(c);
      i += length;
    }
    pending.bytes.clear();
    pending.tokens.clear();
  };
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::string_view text = tokens[t].text;
    const int token = static_cast<int>(t);
    if (text.empty()) {
      flush();
      out.push_back({.code = U'\n', .kind = CharKind::kNewline, .first_token = token, .last_token = token});
      continue;
    }
    pending.bytes.insert(pending.bytes.end(), text.begin(), text.end());
    pending.tokens.insert(pending.tokens.end(), text.size(), token);
  }
  flush();
  return out;
}

}  // namespace varve::content
