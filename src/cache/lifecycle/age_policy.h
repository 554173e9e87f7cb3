#pragma once
// Age alone: the last `recent_tokens` stay Recent, older sealed pages go to Stale1 and never come back.

#include "cache/lifecycle/policy.h"

namespace varve::cache {

class AgePolicy final : public PagePolicy {
 public:
  /// recent_tokens >= 0: a page is stale when at least this many settled tokens follow it.
  explicit AgePolicy(int recent_tokens) : recent_tokens_(recent_tokens) {}
  Wish wanted(const PageFeatures& page) const override;

 private:
  const int recent_tokens_;
};

}  // namespace varve::cache
