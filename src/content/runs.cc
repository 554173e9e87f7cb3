#include "content/runs.h"

#include <algorithm>

namespace varve::content {
namespace {

/// The first token of the code words[i], or of the names that stand right before it.
int owner_begin(const ContentOptions& options, const std::vector<Word>& words, size_t i) {
  const Word& code = words[i];
  int begin = code.begin;
  size_t at = i;
  while (true) {
    size_t owner = at;
    // Over plain words within the gap ("Maria is 4711").
    do {
      if (owner == 0 || words[owner - 1].sentence != code.sentence) return begin;
      --owner;
    } while (words[owner].kind == WordKind::kPlain && begin - words[owner].begin <= options.run_gap_tokens);
    const Word& word = words[owner];
    if (word.kind != WordKind::kTitle || begin - word.end > options.run_gap_tokens ||
        code.end - word.begin > options.most_run_tokens) {
      return begin;
    }
    begin = word.begin;
    at = owner;
  }
}

}  // namespace

std::vector<format::TokenRun> find_runs(const ContentOptions& options, const std::vector<Word>& words) {
  std::vector<format::TokenRun> runs;
  int sentence = -1;  // of the last run
  for (size_t i = 0; i < words.size() && options.most_run_tokens > 0; ++i) {
    const Word& word = words[i];
    if (word.kind != WordKind::kCode) continue;
    const int floor = runs.empty() ? 0 : runs.back().end;
    // A token that two words share belongs to the run of the first.
    int begin = std::max(owner_begin(options, words, i), floor);
    if (begin >= word.end) continue;
    if (!runs.empty() && sentence == word.sentence && begin - floor <= options.run_gap_tokens &&
        word.end - runs.back().begin <= options.most_run_tokens) {
      runs.back().end = word.end;
      continue;
    }
    sentence = word.sentence;
    for (; begin < word.end; begin += options.most_run_tokens) {
      runs.push_back({.begin = begin, .end = std::min(begin + options.most_run_tokens, word.end), .asked = false});
    }
  }
  return runs;
}

}  // namespace varve::content
