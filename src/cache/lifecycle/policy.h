#pragma once
// The seam between what a page is worth and how it is stored: a policy sees features, never a format or its bytes.

#include <array>
#include <cstddef>

#include "cache/cache.h"

namespace varve::cache {

/// What a policy may know about one page.
struct PageFeatures {
  size_t cls = 0;
  int start = 0;       ///< position of the first token
  int tokens = 0;      ///< page_tokens of the class
  int age_tokens = 0;  ///< settled tokens after the page; the shortest sequence that holds it counts
  Tier tier = Tier::kRecent;
  bool sealed = false;
  bool shared = false;                      ///< more than one sequence holds it
  float score = 0;                          ///< attention mass; 0 while nothing measures it
  std::array<size_t, kTiers> tier_bytes{};  ///< slot bytes per tier; 0: the class does not use the tier
  double pressure = 0;                      ///< allocated share of the budget, 0 to 1
  bool relieving = false;                   ///< a reservation failed: the page is asked to shrink now
};

/// The tier a page should be in, and why, in one word for traces and counters. Its present tier: leave it.
struct Wish {
  Tier tier;
  const char* why;
};

/// Must be a pure function of the features, or results stop being reproducible. A policy that reads `pressure` makes a
/// sequence depend on its neighbours; its wish then says "pressure".
class Policy {
 public:
  virtual ~Policy() = default;
  virtual Wish wanted(const PageFeatures& page) const = 0;
};

}  // namespace varve::cache
