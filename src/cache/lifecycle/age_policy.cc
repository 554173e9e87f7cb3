#include "cache/lifecycle/age_policy.h"

namespace varve::cache {

Wish AgePolicy::wanted(const PageFeatures& page) const {
  const bool can_move =
      page.tier == Tier::kRecent && page.sealed && page.tier_bytes[static_cast<size_t>(Tier::kStale1)];
  if (can_move && page.age_tokens >= recent_tokens_) return {Tier::kStale1, "age"};
  if (can_move && page.relieving) return {Tier::kStale1, "pressure"};
  return {page.tier, "keep"};
}

}  // namespace varve::cache
