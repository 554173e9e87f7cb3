#pragma once
// Which pages a KV head keeps, given how much softmax weight each of its query heads would put on them.

#include <cstdint>
#include <span>

namespace varve::attention {

/// Scores of pages: log of the sum of exp(score) over a page's tokens.
struct PageScores {
  const float* log_sums = nullptr;  ///< [heads][pages]
  int heads = 0;
  int pages = 0;
};

/// A page and its worth, for choose_pages to sort.
struct RankedPage {
  double worth = 0;
  int page = 0;
};

/// Names the k pages of [first, last) with the largest share of the softmax over all pages given, summed over heads: a
/// head counts by where its weight falls, not by how large its scores are, and one that looks at pages outside
/// [first, last) has little to say. Of equal pages the earlier ones. A page with a NaN or +inf score comes before all
/// others: a lost key must show wherever it would without a router. chosen: [last - first], 1 or 0, exactly
/// min(k, last - first) of them 1. order: scratch, [last - first].
void choose_pages(const PageScores& scores, int first, int last, int k, std::span<RankedPage> order, uint8_t* chosen);

}  // namespace varve::attention
