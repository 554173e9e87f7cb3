#pragma once
// TokenTraits of a page (format/lr/encode.h) from the text up to the page's end. Nothing after the page is looked at,
// nor, unless a Question is given, anything but the tokens: pages with the same tokens up to their ends get the same
// traits, whoever asks.

#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "content/unicode.h"
#include "content/words.h"
#include "format/lr/encode.h"
#include "varve/content.h"

namespace varve::content {

/// Tokens at the end of a prompt that stand in for a question that nobody points out.
inline constexpr size_t kAskedTokens = 64;

/// What a prompt asks about, as the words of its question. A choice of the caller, page by page: what is kept then
/// depends on who asks first, so pages that sessions share must be read without.
class Question {
 public:
  /// `question`, or when that is empty the last kAskedTokens of `prompt`.
  Question(std::span<const Token> prompt, std::span<const Token> question);
  bool asks_for(const Term& term) const { return terms_.contains(term.hash); }

 private:
  std::unordered_set<uint64_t> terms_;
};

/// Reads a sequence page by page. Memory grows with the words and tokens that differ, not with the length.
class Reader {
 public:
  explicit Reader(const ContentOptions& options) : options_(options) {}

  /// Tokens that come next, but whose traits nobody needs.
  void skip(std::span<const Token> tokens);
  /// Traits of the tokens that come next, as one page. With a question, the runs that it asks for are marked.
  format::TokenTraits page(std::span<const Token> tokens, const Question* question = nullptr);

 private:
  /// The last tokens before the page, with bytes of their own.
  struct Kept {
    int32_t id;
    std::string text;
  };

  Words absorb(std::span<const Token> tokens);
  double idf(int32_t token) const;
  void settle_titles(std::vector<Word>& words) const;
  std::vector<float> boosts(const Words& words, std::span<const Token> page) const;
  bool asks_for(const Question& question, const Words& words, const format::TokenRun& run,
                std::span<const Token> window) const;

  ContentOptions options_;
  int64_t tokens_ = 0;
  std::unordered_map<int32_t, int> count_;   ///< by token id
  std::unordered_set<uint64_t> lower_seen_;  ///< words that are written in small letters somewhere
  std::vector<Kept> context_;
};

/// The same from scratch: traits of `page`, which follows `before` in its sequence.
format::TokenTraits page_traits(const ContentOptions& options, std::span<const Token> before,
                                std::span<const Token> page, const Question* question = nullptr);

}  // namespace varve::content
