#include "engine/speculation/lookup.h"

#include <algorithm>
#include <string>

namespace varve::engine {

Result<std::unique_ptr<PromptLookup>> PromptLookup::create(const LookupOptions& options) {
  if (options.least_ngram < 1 || options.least_ngram > options.most_ngram || options.most_ngram > kMostNgram) {
    return invalid_argument("lookup of " + std::to_string(options.least_ngram) + " to " +
                            std::to_string(options.most_ngram) + " tokens; it must be 1 to " +
                            std::to_string(kMostNgram) + ", the lesser number first");
  }
  return std::unique_ptr<PromptLookup>(new PromptLookup(options));
}

Status PromptLookup::draft(std::span<const int32_t> history, int most, Draft& draft) {
  draft.clear();
  const int length = static_cast<int>(history.size());
  int best = options_.least_ngram - 1, follows = length;  // position after the best match
  // One pass from the end: the scan of a whole context costs microseconds, an index would have to be rolled back.
  for (int end = length - 1; end > best && best < options_.most_ngram; --end) {
    const int limit = std::min(options_.most_ngram, end);
    int n = 0;
    while (n < limit && history[static_cast<size_t>(end - 1 - n)] == history[static_cast<size_t>(length - 1 - n)]) ++n;
    if (n <= best) continue;
    best = n;
    follows = end;
  }
  if (follows == length) return {};
  for (int i = follows; static_cast<int>(draft.tokens.size()) < most; ++i) {
    draft.tokens.push_back(i < length ? history[static_cast<size_t>(i)]
                                      : draft.tokens[static_cast<size_t>(i - length)]);
  }
  return {};
}

}  // namespace varve::engine
