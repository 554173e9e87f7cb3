#include "eval/tasks/truncate.h"

#include <algorithm>

namespace varve::eval {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// Down to the beginning of a character.
size_t character_begin(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && is_continuation(text[at])) --at;
  return at;
}

/// The largest number of bytes from the beginning (or from the end) with at most `tokens` tokens.
size_t bytes_for(std::string_view text, int tokens, bool from_end, const CountTokens& count) {
  const auto part = [&](size_t bytes) {
    const size_t cut = character_begin(text, from_end ? text.size() - bytes : bytes);
    return from_end ? text.substr(cut) : text.substr(0, cut);
  };
  // Doubling first: a long document's tokens are not counted whole again and again.
  size_t fits = 0, too_many = std::min(text.size(), static_cast<size_t>(tokens) + 1);
  while (too_many < text.size() && count(part(too_many)) <= tokens) {
    fits = too_many;
    too_many = std::min(text.size(), 2 * too_many);
  }
  while (too_many - fits > 1) {
    const size_t middle = fits + (too_many - fits) / 2;
    (count(part(middle)) <= tokens ? fits : too_many) = middle;
  }
  return part(fits).size();
}

}  // namespace

Truncated truncate_middle(std::string_view text, int tokens, const CountTokens& count) {
  const int all = count(text);
  if (all <= tokens) return {std::string(text), 0};
  if (tokens <= 0) return {"", all};
  // The halves together may have a token more than each by itself: then a little less of each is taken.
  for (int budget = tokens; budget > 1; --budget) {
    const size_t head = bytes_for(text, budget / 2, false, count);
    const size_t tail = bytes_for(text, budget - budget / 2, true, count);
    Truncated out{std::string(text.substr(0, head)) + std::string(text.substr(text.size() - tail))};
    const int kept = count(out.text);
    if (kept > tokens) continue;
    out.dropped_tokens = all - kept;
    return out;
  }
  return {"", all};
}

}  // namespace varve::eval
