#pragma once
// How many tokens are worth drafting: as many as pay for their rows by how often drafts were right lately, and none
// where they do not. Counts alone decide, never a clock, so equal runs draft equally.

#include <cstdint>

namespace varve::engine {

class DraftLength {
 public:
  /// most: of one step. row_cost: of a further row in a step of one row, as a part of that step; with acceptance a,
  /// n drafts give (1 - a^(n+1)) / (1 - a) tokens for 1 + n row_cost of a plain step.
  DraftLength(int most, double row_cost) : most_(most), row_cost_(row_cost) {}

  /// Drafts for the next step; 0 while drafts do not pay. Then one is tried after 2, 4, ... at most kLongestPause such
  /// answers, so that a text which becomes predictable is noticed.
  int next();
  /// The last step fed `drafted` tokens, of which the first `accepted` were right.
  void verified(int drafted, int accepted);

  double acceptance() const { return acceptance_; }  ///< moving average over judged tokens
  static constexpr int kLongestPause = 32;

 private:
  int best() const;

  const int most_;
  const double row_cost_;
  double acceptance_ = 0.7;   ///< before anything is known: a short draft is tried
  int pause_ = 0, wait_ = 0;  ///< steps of the present pause, and how many of them are left
};

}  // namespace varve::engine
