#pragma once
// Two arms that answered the same questions: what the questions on which they differ can say.

#include <cstdint>
#include <span>

#include "eval/stats/interval.h"

namespace varve::eval {

/// The fourfold table of paired right/wrong answers of a reference and an arm.
struct PairedCounts {
  int64_t both_right = 0;
  int64_t wins = 0;    ///< the arm is right where the reference is wrong
  int64_t losses = 0;  ///< the reference is right where the arm is wrong
  int64_t both_wrong = 0;

  int64_t n() const { return both_right + wins + losses + both_wrong; }
  /// Rate of the arm minus rate of the reference; 0 when there is no pair.
  double delta() const;
};

/// Scores of the same items in the same order; a score of 0.5 or more counts as right. Sizes must be equal.
PairedCounts count_pairs(std::span<const double> reference, std::span<const double> arm);

/// Exact two-sided McNemar test: the probability, when wins and losses are equally likely, of a split of the discordant
/// pairs at least as uneven as this one (twice the binomial tail, at most 1). 1 without a discordant pair.
double mcnemar_exact(int64_t wins, int64_t losses);

/// Interval of the difference of paired proportions (arm - reference): method 10 of Newcombe, "Improved confidence
/// intervals for the difference between binomial proportions based on paired data", Statistics in Medicine 17 (1998),
/// which joins two Wilson score intervals and corrects for the correlation of the pairs. [-1, 1] when there is no pair.
Interval newcombe_paired(const PairedCounts& counts, double confidence = 0.95);

/// Wilson's score interval of a proportion right / n; [0, 1] when n is 0.
Interval wilson(int64_t right, int64_t n, double confidence = 0.95);

}  // namespace varve::eval
