#pragma once
// What the loaders do alike with a question and the document that it is about.

#include <algorithm>
#include <string>

#include "eval/tasks/item.h"
#include "eval/tasks/loaders.h"
#include "eval/tasks/truncate.h"
#include "varve/status.h"

namespace varve::eval {

/// Puts `before` + document + `after` into the item's context, the document shortened in its middle so that all fits
/// options.length. kResourceExhausted, from `place`, when not even an empty document fits.
inline Status fit_document(Item& item, const std::string& before, const std::string& document, const std::string& after,
                           const std::string& place, const LoadOptions& options) {
  const CountTokens& count = options.count_tokens;
  int answer = item.answer_tokens;
  if (answer == 0)
    for (const std::string& choice : item.choices) answer = std::max(answer, count(choice));
  const int beside = options.template_tokens + answer + count(item.question) +
                     (item.answer_prefix.empty() ? 0 : count(item.answer_prefix));
  // The seams between the parts may cost a token: what is counted last is the whole.
  int room = options.length - beside - count(before) - count(after);
  for (; room > 0; --room) {
    const Truncated kept = truncate_middle(document, room, count);
    item.context = before + kept.text + after;
    item.dropped_tokens = kept.dropped_tokens;
    const int over = beside + count(item.context) - options.length;
    if (over <= 0) return {};
    room -= over - 1;
  }
  return resource_exhausted(place + ": the question and its answer take " +
                            std::to_string(beside + count(before + after)) + " of " + std::to_string(options.length) +
                            " tokens, which leaves no room for the document");
}

}  // namespace varve::eval
