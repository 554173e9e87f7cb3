#pragma once
// Texts as tokens: written with '|' between tokens, equal texts with equal ids.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "content/traits.h"

namespace varve::content::test {

class Tokens {
 public:
  /// "a| b||c" is four tokens, the third of them a control token. `repeat` times over.
  explicit Tokens(const std::string& marked, int repeat = 1) {
    std::string one;
    for (const char c : marked + "|") {
      if (c != '|') {
        one += c;
        continue;
      }
      texts_.push_back(one);
      one.clear();
    }
    const std::vector<std::string> once = texts_;
    for (int i = 1; i < repeat; ++i) texts_.insert(texts_.end(), once.begin(), once.end());
  }
  /// Every `width` bytes one token.
  static Tokens cut(std::string_view text, size_t width) {
    Tokens out;
    for (size_t i = 0; i < text.size(); i += width) out.texts_.emplace_back(text.substr(i, width));
    return out;
  }
  Tokens& operator+=(const Tokens& other) {
    texts_.insert(texts_.end(), other.texts_.begin(), other.texts_.end());
    return *this;
  }

  /// Valid while this lives and is not changed. Ids are the order of first appearance anywhere in the test program.
  std::vector<Token> all() const {
    static std::map<std::string, int32_t> ids;
    std::vector<Token> out;
    for (const std::string& text : texts_) {
      out.push_back({ids.emplace(text, static_cast<int32_t>(ids.size())).first->second, text});
    }
    return out;
  }
  /// The first token with this text, -1 when there is none.
  int find(std::string_view text) const {
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == text) return static_cast<int>(i);
    }
    return -1;
  }
  std::string joined(int begin, int end) const {
    std::string out;
    for (int i = begin; i < end; ++i) out += texts_[static_cast<size_t>(i)];
    return out;
  }
  int size() const { return static_cast<int>(texts_.size()); }

 private:
  Tokens() = default;
  std::vector<std::string> texts_;
};

/// Traits of tokens [page_begin, end), read from scratch.
inline format::TokenTraits traits_of(const Tokens& tokens, int page_begin = 0, const ContentOptions& options = {},
                                     const Question* question = nullptr) {
  const std::vector<Token> all = tokens.all();
  const std::span<const Token> span(all);
  return page_traits(options, span.first(static_cast<size_t>(page_begin)),
                     span.subspan(static_cast<size_t>(page_begin)), question);
}

/// The texts of the runs, e.g. {"Falcon-9427", "12:30"}.
inline std::vector<std::string> run_texts(const Tokens& tokens, const format::TokenTraits& traits, int page_begin = 0) {
  std::vector<std::string> out;
  for (const format::TokenRun& run : traits.runs)
    out.push_back(tokens.joined(page_begin + run.begin, page_begin + run.end));
  return out;
}

/// No rarity, so that boosts are those of the classes alone.
inline ContentOptions classes_only() {
  ContentOptions options;
  options.rarity_weight = 0;
  return options;
}

/// Only names and digits: what a frequent word gets is not in the way.
inline ContentOptions no_rare() {
  ContentOptions options = classes_only();
  options.rare_count = 0;
  return options;
}

}  // namespace varve::content::test
