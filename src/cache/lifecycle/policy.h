#pragma once
// The seam between what a page is worth and how it is stored: a policy sees features, never a format or its bytes.

#include <array>
#include <cstddef>
#include <span>

#include "cache/cache.h"

namespace varve::cache {

/// What a policy may know about one page.
struct PageFeatures {
  size_t cls = 0;
  int start = 0;       ///< position of the first token
  int tokens = 0;      ///< page_tokens of the class
  int age_tokens = 0;  ///< settled tokens after the page; the shortest sequence that holds it counts
  /// Where the page is, or where it is going: the destination of a conversion in flight or of a promotion that has
  /// asked for its source.
  Tier tier = Tier::kRecent;
  bool sealed = false;
  bool shared = false;    ///< more than one sequence holds it
  bool marked = false;    ///< lies in a span that the caller of any holder marked, e.g. a system prompt
  bool dwelling = false;  ///< moved less than the controller's dwell_tokens ago: leave it unless it must move
  /// Share of the sequence's attention that falls on the page: the average of equation 9 of the Minima-KV paper over
  /// the observations so far, so that the pages of a sequence have a sum of 1. The maximum over the holders; 0 while
  /// nothing was observed.
  float score = 0;
  std::array<size_t, kTiers> tier_bytes{};  ///< slot bytes per tier; 0: the class does not use the tier
  double pressure = 0;                      ///< allocated share of the budget, 0 to 1
  bool relieving = false;                   ///< a reservation failed: the page is asked to shrink now

  bool has(Tier t) const { return tier_bytes[static_cast<size_t>(t)] != 0; }
};

/// The tier a page should be in, and why, in one word for traces and counters. Its present tier: leave it.
struct Wish {
  Tier tier;
  const char* why;
  double value = 0;  ///< 0 to 1: under pressure the anchor with the lowest goes first
};

/// Must be a pure function of the features, or results stop being reproducible. A policy that reads `pressure` makes a
/// sequence depend on its neighbours; its wish then says "pressure".
class Policy {
 public:
  virtual ~Policy() = default;
  /// pages: all of one sequence in one class, by position, sealed or not. Sets each of `wishes`, as many as pages.
  virtual void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const = 0;
};

/// A policy that looks at each page alone.
class PagePolicy : public Policy {
 public:
  virtual Wish wanted(const PageFeatures& page) const = 0;
  void decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const final {
    for (size_t i = 0; i < pages.size(); ++i) wishes[i] = wanted(pages[i]);
  }
};

}  // namespace varve::cache
