#pragma once
// Which tokens make sense only together.

#include <vector>

#include "content/words.h"
#include "format/lr/encode.h"
#include "varve/content.h"

namespace varve::content {

/// Runs of tokens, disjoint and ascending: codes, each with the name before it, joined over at most
/// options.run_gap_tokens others; never across the end of a sentence or line, never longer than
/// options.most_run_tokens. Cut between words where there is a choice.
std::vector<format::TokenRun> find_runs(const ContentOptions& options, const std::vector<Word>& words);

}  // namespace varve::content
