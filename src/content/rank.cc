#include "content/rank.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <string_view>

namespace varve::content {
namespace {

/// Mathematical characters that make a formula: one may be a bullet or a minus.
constexpr int kMathCharacters = 3;

constexpr std::array<std::string_view, 24> kLatexCommands = {
    "begin", "cdot", "delta",  "equiv",   "exists", "forall", "frac",    "infty", "int",   "lambda", "ldots", "leq",
    "lim",   "log",  "mathbb", "mathcal", "mathrm", "nabla",  "partial", "prod",  "sigma", "sqrt",   "sum",   "times"};
static_assert(std::is_sorted(kLatexCommands.begin(), kLatexCommands.end()));

bool is_math(char32_t code) {
  return (code >= 0x2200 && code <= 0x22FF) || (code >= 0x2A00 && code <= 0x2AFF) ||
         (code >= 0x1D400 && code <= 0x1D7FF);
}
bool defines(char32_t code) { return code == 0x2254 || code == 0x225C || code == 0x225D; }  // := triangle-= def-=
bool ends_number(char32_t code) {
  constexpr std::u32string_view kEnds = U".:()\uFF0E\uFF1A\uFF08\uFF09\u3001";
  return kEnds.find(code) != std::u32string_view::npos;
}

class FormReader {
 public:
  FormReader(const std::vector<Char>& chars, size_t begin) : chars_(chars), begin_(begin) {}

  bool has_formula() const {
    int math = 0;
    for (size_t i = begin_; i < chars_.size(); ++i) {
      math += is_math(at(i));
      if (math >= kMathCharacters || (at(i) == '$' && at(i + 1) == '$') || (at(i) == '\\' && is_latex(i + 1))) {
        return true;
      }
    }
    return false;
  }

  bool has_definition() const {
    bool line_begins = begin_ == 0 || kind(begin_ - 1) == CharKind::kNewline;
    for (size_t i = begin_; i < chars_.size(); ++i) {
      if (defines(at(i)) || (at(i) == ':' && at(i + 1) == '=')) return true;
      if (line_begins && is_statement(i)) return true;
      line_begins = kind(i) == CharKind::kNewline;
    }
    return false;
  }

 private:
  char32_t at(size_t i) const { return i < chars_.size() ? chars_[i].code : 0; }
  CharKind kind(size_t i) const { return i < chars_.size() ? chars_[i].kind : CharKind::kOther; }

  bool is_latex(size_t i) const {
    std::string command;
    while (command.size() <= 8 && at(i) < 128 && is_cased(kind(i))) command.push_back(static_cast<char>(at(i++)));
    return std::binary_search(kLatexCommands.begin(), kLatexCommands.end(), std::string_view(command));
  }

  /// A word, a number and its end, after at most a few marks of markup: "## Theorem 3.1.".
  bool is_statement(size_t i) const {
    for (int markup = 0; markup < 8 && kind(i) == CharKind::kOther && at(i) != 0; ++markup) ++i;
    const size_t word = i;
    const bool cased = kind(i) == CharKind::kUpper;
    if (!cased && kind(i) != CharKind::kLetter) return false;
    while (is_word(kind(i)) && kind(i) != CharKind::kDigit) ++i;
    // Four letters: not "On 12." A word without case says as much in one or two characters, and needs no space.
    const size_t letters = i - word;
    if (cased ? letters < 4 || at(i) != ' ' : letters > 8) return false;
    if (at(i) == ' ') ++i;
    if (kind(i) != CharKind::kDigit) return false;
    while (kind(i) == CharKind::kDigit || (at(i) == '.' && kind(i + 1) == CharKind::kDigit)) ++i;
    return ends_number(at(i));
  }

  const std::vector<Char>& chars_;
  size_t begin_;
};

}  // namespace

bool is_formal(const ContentOptions& options, const Words& words, int page_begin) {
  const auto first = words.has_digit.begin() + page_begin;
  const auto tokens = static_cast<double>(words.has_digit.end() - first);
  const int digits = std::accumulate(first, words.has_digit.end(), 0);
  if (digits > 0 && digits >= options.numeric_share * tokens) return true;
  const auto begin = std::partition_point(words.chars.begin(), words.chars.end(),
                                          [&](const Char& c) { return c.first_token < page_begin; });
  const FormReader form(words.chars, static_cast<size_t>(begin - words.chars.begin()));
  return form.has_formula() || form.has_definition();
}

}  // namespace varve::content
