#pragma once
// The controller's state, shared by its parts: controller.cc (the public calls), review.cc (what should move),
// conversions.cc (moving it).

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cache/lifecycle/controller.h"
#include "cache/lifecycle/refinements.h"

namespace varve::cache {

inline constexpr const char* kPressure = "pressure";

inline bool is_stale(Tier tier) { return tier == Tier::kStale1 || tier == Tier::kStale2; }
/// A move that needs finer bytes than the page has.
inline bool is_promotion(Tier from, Tier to) { return is_stale(from) && to < from; }

struct Controller::Impl {
  using Clock = std::chrono::steady_clock;

  /// What a promotion has heard from the fidelity source.
  enum class Ask : uint8_t { kNot, kPending, kReady, kNone };

  struct Waiting {
    size_t cls = 0;
    PageId page = 0;
    int start = 0;
    Tier from = Tier::kRecent, to = Tier::kRecent;
    const char* why = "";
    float score = 0;
    Ask ask = Ask::kNot;

    bool asked() const { return ask == Ask::kPending || ask == Ask::kReady; }
  };

  struct Active {
    Conversion conversion;
    SequenceId sequence = 0;
    int start = 0;
    const char* why = "";
    const char* how = "";
    float score = 0;
    bool sourced = false;          ///< the fidelity source waits for done()
    const uint8_t* src = nullptr;  ///< of the units
    Tier src_tier = Tier::kRecent;
    int spent_tokens = 0;  ///< of the page, handed out so far
    int spent_units = 0;
    Clock::time_point began;
  };

  /// The last time a page moved, on the clock of one sequence that held it then.
  struct Move {
    int64_t clock = 0;
    bool promoted = false;
  };

  struct Queue {
    int reviewed = -1;      ///< review number (length / review_tokens) of the last review
    int length = 0;         ///< settled tokens then
    bool due = false;       ///< a review is due whatever the length
    bool earned = false;    ///< settled since the last advance
    int earned_tokens = 0;  ///< how many tokens then
    int64_t clock = 0;      ///< tokens settled in all
    std::deque<Waiting> waiting;
    std::deque<Active> active;
    std::vector<PageScores> scores;  ///< by class
    std::vector<int> observations;   ///< by class, since the last review
    Marks marks;
    std::map<PageId, Move> moves;
    std::set<PageId> marked_pages;   ///< at the last review
    std::set<PageId> anchor_wishes;  ///< at the last review
  };

  enum class Start {
    kStarted,
    kObsolete,  ///< there is nothing to move any more
    kRefused,
    kPending,
    kNoRoom,
  };

  Impl(Cache* cache, const Policy* policy, const Options& options, TraceFn trace, FidelitySource* source);
  ~Impl();

  int page_tokens(size_t cls) const { return cache->config().classes[cls].page_tokens; }
  int units(size_t cls) const { return options.units_per_page[cls]; }
  size_t slot_bytes(size_t cls, Tier tier) const { return cache->pool(cls, tier).slot_bytes; }
  TransitionCounts& counts(Tier from, Tier to) {
    return stats.transitions[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  bool whole(const Active& a) const { return a.spent_units == units(a.conversion.cls()); }
  Queue& queue_of(SequenceId id);

  // review.cc
  std::vector<PageFeatures> features(SequenceId id, size_t cls, std::span<const BlockEntry> blocks, int length,
                                     bool relieving) const;
  void review(SequenceId id, Queue& queue, int length);
  /// Another holder's last wish keeps the page out of `to`.
  bool held_back(SequenceId id, const BlockEntry& block, Tier to) const;

  // conversions.cc
  void refuse(SequenceId id, const Waiting& w, const char* how, Refusal reason);
  const char* plain_how(size_t cls, Tier from, Tier to) const;
  /// A move into a tier that is not stale leaves the headroom that a demotion may need.
  bool has_room(const Waiting& w) const;
  /// Asks or polls the source of a promotion.
  void ask(SequenceId id, Waiting& w);
  /// Starts w at the end of `active`; refusals are counted.
  Start start(SequenceId id, Waiting& w, std::deque<Active>* active);
  /// Starts the i-th waiting page. It leaves the queue unless it is pending or lacks room.
  Start start_waiting(SequenceId id, Queue& queue, size_t i);
  /// w leaves the queue unstarted.
  void withdraw(const Waiting& w);
  void drop_waiting(Queue& queue);
  /// Polls the promotions that are pending; those whose page is gone leave the queue.
  void poll(SequenceId id, Queue& queue);
  /// Hands out the next units of a worth `tokens`.
  void hand_out(Active& a, int tokens, std::vector<WorkUnit>* out) const;
  /// Ends a: published when that is wished, its units are complete and the page still has an owner, else abandoned.
  void end(Active a, bool publish = true);
  void complete(Active a, const WorkFn& work);
  /// Notes that the page moved, with every sequence that holds it.
  void moved(SequenceId id, size_t cls, PageId page, int start, Tier from, Tier to);
  /// Conversions of pages that nobody holds any more are abandoned; those of finished sequences whose page lives on
  /// continue for the lowest holder.
  void settle_ownership();
  /// Bytes that start, fork and reserve can use: the budget's rest and free recent slots.
  size_t room() const;

  Cache* const cache;
  const Policy* const policy;
  const Options options;
  const TraceFn trace;
  Refinements refinements;
  ControllerStats stats;
  int64_t step = 0;  ///< of the last advance, relieve or flush
  std::map<SequenceId, Queue> queues;
  std::set<PageId> queued;  ///< pages waiting in any queue
};

}  // namespace varve::cache
