#pragma once
// Exact rows for a page whose finer bytes are gone: its tokens are read again, a slice per step of their session, by a
// hidden cache sequence that shares every page before it. Its own page then holds the rows in the recent format.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "cache/cache.h"

namespace varve::engine {

class Recompute {
 public:
  /// page_tokens: of every class. The cache outlives the object.
  Recompute(cache::Cache& cache, int page_tokens, int tokens_per_step)
      : cache_(cache), page_tokens_(page_tokens), tokens_per_step_(tokens_per_step) {}
  ~Recompute();
  Recompute(const Recompute&) = delete;
  Recompute& operator=(const Recompute&) = delete;

  enum class State { kReady, kPending, kNone };
  /// Begins the recomputation of the page at `start` for `page`, or says how far it is. kNone: it cannot be done (why
  /// is counted in refused()).
  State ask(cache::SequenceId session, cache::PageId page, int start);
  /// The recomputed page's slot in the recent layout; only after kReady and until done().
  const uint8_t* slot(size_t cls, cache::PageId page);
  /// `page` needs it no longer. The work ends with the last page that asked for it. Idempotent.
  void done(cache::PageId page);
  /// Ends all work and frees its pages; whoever waits for it will be told kNone. No slot() may be in use.
  void give_up();

  /// Positions [begin, end) of the session's tokens that its next step should feed to `reader`, at most max_rows.
  struct Slice {
    cache::SequenceId session = 0, reader = 0;
    int begin = 0, end = 0;
  };
  std::optional<Slice> next(cache::SequenceId session, int max_rows) const;
  /// The slice has been fed and settled.
  void fed(const Slice& slice);
  /// The slice could not be fed: no room. Whoever waits for it will be told kNone.
  void fail(const Slice& slice);

  uint64_t tokens() const { return tokens_; }
  const std::map<std::string, uint64_t>& refused() const { return refused_; }

 private:
  struct Job {
    cache::SequenceId session = 0, reader = 0;
    int start = 0, fed = 0;
    bool failed = false;
    std::set<cache::PageId> pages;
  };
  using Jobs = std::map<std::pair<cache::SequenceId, int>, Job>;  ///< by session and start: the order of work
  Jobs::iterator of(cache::PageId page);
  Jobs::iterator end(Jobs::iterator job);

  cache::Cache& cache_;
  const int page_tokens_;
  const int tokens_per_step_;
  Jobs jobs_;
  uint64_t tokens_ = 0;
  std::map<std::string, uint64_t> refused_;
};

}  // namespace varve::engine
