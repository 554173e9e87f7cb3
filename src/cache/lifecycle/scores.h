#pragma once
// What the engine and the caller say about the pages of a sequence: attention mass, and marked spans.

#include <map>
#include <span>
#include <vector>

#include "cache/cache.h"

namespace varve::cache {

/// Positions begin to end - 1.
struct Span {
  int begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// Running averages of the attention mass of one sequence's pages in one class.
class PageScores {
 public:
  /// Equation 9 of the Minima-KV paper: a = decay * a + (1 - decay) * r, with a = 0 for a page not seen before. Pages
  /// that are not in `blocks` are forgotten. kInvalidArgument, and nothing changes, when the numbers of blocks and
  /// masses differ or a mass is not in 0 to 1 (within rounding).
  Status observe(std::span<const BlockEntry> blocks, std::span<const float> mass, double decay);
  /// a divided by 1 - decay^observations, the sum of the weights of what was observed; 0 for a page not seen.
  float score(PageId page) const;
  void keep_only(std::span<const BlockEntry> blocks);

 private:
  std::map<PageId, double> averages_;
  double weight_ = 0;
};

/// Marked positions of one sequence.
class Marks {
 public:
  /// 0 <= begin < end. Joins spans that overlap or touch.
  void add(Span span);
  bool overlap(Span span) const;
  /// Forgets the positions from `length` on.
  void cut(int length);
  const std::vector<Span>& spans() const { return spans_; }

 private:
  std::vector<Span> spans_;  ///< ascending, apart
};

}  // namespace varve::cache
