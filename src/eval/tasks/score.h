#pragma once
// Answers to scores.

#include <string>
#include <string_view>

#include "eval/tasks/item.h"

namespace varve::eval {

/// The score of a generated answer in [0, 1], by item.scorer. Two kinds are decided by likelihood and not by what is
/// generated: for kChoice `answer` is the choice that was likeliest, for kCopy a text whose score is the share of
/// references[0] that it begins with. An item without references scores 0.
double score(const Item& item, const std::string& answer);

/// X of "The correct answer is (X)", or of "The correct answer is X", as LongBench v2 extracts it; 0 when there is
/// none.
char choice_letter(std::string_view answer);

}  // namespace varve::eval
