#pragma once
// What the loaders do alike with a question and the document that it is about.

#include <algorithm>
#include <string>
#include <vector>

#include "eval/tasks/item.h"
#include "eval/tasks/json_records.h"
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

/// The items of a file's first options.n records (0: all) by make(record, line).
template <typename Make>
Result<std::vector<Item>> load_records(const std::string& path, const std::vector<RawRecord>& records,
                                       const LoadOptions& options, const Make& make) {
  if (!options.count_tokens) return invalid_argument("a loader needs a way to count tokens");
  if (options.n < 0) return invalid_argument("n is " + std::to_string(options.n) + "; 0 means all questions");
  if (options.length < 1)
    return invalid_argument("length is " + std::to_string(options.length) + "; it must be 1 or more");
  std::vector<Item> items;
  for (const RawRecord& raw : records) {
    if (options.n > 0 && static_cast<int>(items.size()) == options.n) break;
    const Result<Record> record = Record::parse(path, raw);
    if (!record.ok()) return record.status();
    Result<Item> item = make(*record, raw.line);
    if (!item.ok()) return item.status();
    items.push_back(std::move(*item));
  }
  return items;
}

}  // namespace varve::eval
