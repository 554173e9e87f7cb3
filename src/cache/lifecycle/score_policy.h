#pragma once
// Age and attention: what is young stays Recent, what the model still reads stays (or becomes again) an Anchor, the
// rest goes to Stale1. Why all pages are ranked together, and the hysteresis: docs/adr/0010-scores-and-promotion.md.

#include "cache/lifecycle/policy.h"
#include "varve/status.h"

namespace varve::cache {

/// In every class that has an Anchor tier, marked pages are Anchors and young ones (fewer than recent_tokens after
/// them) that are Recent or Anchor already stay where they are. All other sealed pages compete for anchor_tokens by
///
///   value = (weight_score * score / best score + weight_age * (1 - age / greatest age) + weight_shared * shared)
///           / (weight_score + weight_age + weight_shared)
///
/// where best and greatest are taken over the competing pages, so each term and the value lie in 0 to 1.
///   - An anchor leaves ("faded") when its score is below leave_score times the uniform share 1 / pages, or when it is
///     the weakest of too many. With nothing observed, no score is held against it.
///   - A page enters ("score") when its score is above least_score times the uniform share, and there is a free place
///     or its value is more than enter_ratio times that of the weakest anchor, which then leaves.
///   - A dwelling page neither enters nor leaves.
///   - A Recent page that does not enter goes to Stale1 ("age").
/// A stale page never moves to Recent. Without an Anchor tier the class behaves as under AgePolicy. When relieving,
/// Recent pages and anchors go to Stale1 ("pressure"), with their value and mark saying in which order.
class ScorePolicy final : public Policy {
 public:
  struct Options {
    int recent_tokens = 256;
    int anchor_tokens = 1024;  ///< of a sequence in a class; rounded down to pages. Marked pages come on top
    double weight_score = 1;
    double weight_age = 0.05;
    double weight_shared = 0.05;
    double enter_ratio = 1.5;  ///< at least 1
    double least_score = 1;    ///< in uniform shares; at least leave_score
    double leave_score = 0.5;  ///< in uniform shares; at least 0
  };
  /// kInvalidArgument names the option that makes no sense, with its value.
  static Status validate(const Options& options);
  /// options must be valid.
  explicit ScorePolicy(const Options& options) : options_(options) {}
  void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const override;

 private:
  void compete(std::span<const PageFeatures> pages, std::span<Wish> wishes) const;
  const Options options_;
};

}  // namespace varve::cache
