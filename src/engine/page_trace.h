#pragma once
// The part of a lifecycle trace that the controller does not see: pages that begin and end to belong to a session.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cache/cache.h"
#include "varve/engine.h"

namespace varve::engine {

class PageTrace {
 public:
  PageTrace(const cache::Cache& cache, std::function<void(const Transition&)> emit)
      : cache_(cache), emit_(std::move(emit)) {}

  /// Passes on a move that the controller reports.
  void moved(const Transition& t, cache::PageId page, cache::Tier to);

  /// Compares the session's sealed pages with those of the last call. New ones are reported with `why` and `how`, lost
  /// ones with `gone`. A session that the cache does not know has no pages.
  void update(int64_t step, SessionId session, const char* why, const char* how, const char* gone);

 private:
  const cache::Cache& cache_;
  const std::function<void(const Transition&)> emit_;
  std::map<SessionId, std::vector<std::map<cache::PageId, int>>> sessions_;  ///< by class: starts of known pages
  std::map<cache::PageId, cache::Tier> tiers_;                               ///< of known pages
};

}  // namespace varve::engine
