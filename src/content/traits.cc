#include "content/traits.h"

#include <algorithm>
#include <cmath>

#include "content/rank.h"
#include "content/runs.h"

namespace varve::content {
namespace {

/// Tokens before a page that are read again with it: words, names and runs cross its start.
constexpr size_t kContextTokens = 64;
/// Tokens of the longest word whose spelling is remembered.
constexpr int kLongestWord = 32;
/// A character cut by the start of the context takes at most so many tokens of it.
constexpr int kCutTokens = 4;
static_assert(kContextTokens > kLongestWord + kCutTokens, "a word that crosses a page start must be in the context");
/// Tokens read at once; what is remembered does not depend on it.
constexpr size_t kChunkTokens = 1024;

}  // namespace

Question::Question(std::span<const Token> prompt, std::span<const Token> question) {
  if (question.empty()) question = prompt.last(std::min(prompt.size(), kAskedTokens));
  for (const Term& term : read_words(question, false).terms) terms_.insert(term.hash);
}

void Reader::skip(std::span<const Token> tokens) {
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), kChunkTokens);
    absorb(tokens.first(count));
    tokens = tokens.subspan(count);
  }
}

/// Counts the tokens; the words of the context and them, token 0 being the context's first.
Words Reader::absorb(std::span<const Token> tokens) {
  const bool at_start = tokens_ == static_cast<int64_t>(context_.size());
  std::vector<Token> window;
  window.reserve(context_.size() + tokens.size());
  for (const Kept& kept : context_) window.push_back({kept.id, kept.text});
  window.insert(window.end(), tokens.begin(), tokens.end());

  for (const Token& token : tokens) ++count_[token.id];
  tokens_ += static_cast<int64_t>(tokens.size());
  Words words = read_words(window, at_start);
  for (const Term& term : words.terms) {
    // The first terms of a context may be ends of longer words, and the last may go on after the page.
    const bool whole = term.complete && (at_start || term.begin >= kCutTokens);
    if (whole && term.lower && term.end - term.begin <= kLongestWord) lower_seen_.insert(term.hash);
  }

  std::vector<Kept> context;
  for (size_t i = window.size() - std::min(window.size(), kContextTokens); i < window.size(); ++i) {
    context.push_back({window[i].id, std::string(window[i].text)});
  }
  context_ = std::move(context);
  return words;
}

double Reader::idf(int32_t token) const {
  const auto it = count_.find(token);
  const double count = it == count_.end() ? 0 : it->second;
  return std::log(static_cast<double>(std::max<int64_t>(tokens_, 2)) / (count + 0.1));
}

/// A capital at the start of a sentence makes no name of a word that is known in small letters.
void Reader::settle_titles(std::vector<Word>& words) const {
  for (Word& word : words) {
    if (word.kind == WordKind::kTitle && word.starts_sentence && lower_seen_.contains(word.hash)) {
      word.kind = WordKind::kPlain;
    }
  }
}

std::vector<float> Reader::boosts(const Words& words, std::span<const Token> page) const {
  const int first = static_cast<int>(words.has_digit.size() - page.size());
  std::vector<float> out(page.size(), 1.0f);
  const auto raise = [&](int token, double boost) {
    float& b = out[static_cast<size_t>(token - first)];
    b = std::max(b, static_cast<float>(boost));
  };
  const auto count = [&](int token) { return count_.at(page[static_cast<size_t>(token - first)].id); };
  for (const Word& word : words.words) {
    const int begin = std::max(word.begin, first);
    bool rare = false;
    for (int t = begin; t < word.end; ++t)
      rare |= words.has_letter[static_cast<size_t>(t)] && count(t) <= options_.rare_count;
    for (int t = begin; t < word.end; ++t) {
      const auto at = static_cast<size_t>(t);
      if (words.has_digit[at]) {
        raise(t, options_.digit_boost);
      } else if (!words.has_letter[at]) {
        continue;
      } else if (word.kind != WordKind::kPlain) {
        raise(t, options_.owner_boost);
      } else if (rare) {
        raise(t, options_.rare_boost);
      }
    }
  }
  for (size_t i = 0; i < page.size(); ++i) {
    const size_t at = i + static_cast<size_t>(first);
    if (!words.has_letter[at] && !words.has_digit[at]) continue;
    const double weight = idf(page[i].id);
    if (weight >= options_.least_idf) out[i] *= static_cast<float>(std::max(1.0, options_.rarity_weight * weight));
  }
  return out;
}

/// Whether the sentence of a run shares a telling word with the question: one whose rarest token was seen at most about
/// as often as the square root of the tokens so far.
bool Reader::asks_for(const Question& question, const Words& words, const format::TokenRun& run,
                      std::span<const Token> window) const {
  const auto in_run = std::find_if(words.terms.begin(), words.terms.end(),
                                   [&](const Term& term) { return term.end > run.begin && term.begin < run.end; });
  if (in_run == words.terms.end()) return false;
  const double telling = 0.5 * std::log(static_cast<double>(std::max<int64_t>(tokens_, 2)));
  return std::any_of(words.terms.begin(), words.terms.end(), [&](const Term& term) {
    if (term.sentence != in_run->sentence || !question.asks_for(term)) return false;
    for (int t = term.begin; t < term.end; ++t) {
      if (idf(window[static_cast<size_t>(t)].id) >= telling) return true;
    }
    return false;
  });
}

format::TokenTraits Reader::page(std::span<const Token> tokens, const Question* question) {
  format::TokenTraits traits;
  if (!options_.on) {
    return traits;
  }
  std::vector<Kept> context = context_;
  Words words = absorb(tokens);
  settle_titles(words.words);
  const int page_begin = static_cast<int>(context.size()), page_tokens = static_cast<int>(tokens.size());
  traits.boost = boosts(words, tokens);
  if (is_formal(options_, words, page_begin)) traits.rank_boost = static_cast<float>(options_.rank_boost);

  std::vector<Token> window;
  for (const Kept& kept : context) window.push_back({kept.id, kept.text});
  window.insert(window.end(), tokens.begin(), tokens.end());
  for (format::TokenRun run : find_runs(options_, words.words)) {
    run.asked = question != nullptr && asks_for(*question, words, run, window);
    run.begin = std::max(run.begin - page_begin, 0);
    run.end = std::min(run.end - page_begin, page_tokens);
    if (run.begin < run.end) traits.runs.push_back(run);
  }
  return traits;
}

format::TokenTraits page_traits(const ContentOptions& options, std::span<const Token> before,
                                std::span<const Token> page, const Question* question) {
  Reader reader(options);
  reader.skip(before);
  return reader.page(page, question);
}

}  // namespace varve::content
