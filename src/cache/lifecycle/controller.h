#pragma once
// Moves pages to the tiers a policy wants, in slices counted in tokens per step, published at step boundaries.
//
// Every sequence has its own queue and its own budget, which it earns by settling, so that the moment one of its pages
// changes does not depend on its batch neighbours. Exceptions, both visible: a page that several sequences hold is as
// young as the shortest of them says and an anchor as long as one of them says so, and relieve() converts whose pages
// are oldest (why = "pressure").
//
// A promotion (out of a stale tier into a finer one) first asks the fidelity source, and takes its destination only
// when the source has the bytes.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "cache/lifecycle/fidelity.h"
#include "cache/lifecycle/policy.h"
#include "cache/lifecycle/scores.h"

namespace varve::cache {

/// One independent part of one conversion, e.g. the planes of one KV head of one layer. The units of a conversion write
/// disjoint parts of dst.
struct WorkUnit {
  size_t cls;
  PageId page;
  Tier from, to;       ///< the layouts of src and dst; `from` is not the page's present tier when a source gave src
  int start;           ///< position of the page's first token
  int unit;            ///< 0 to units_per_page - 1
  const uint8_t* src;  ///< whole slots
  uint8_t* dst;
};
/// Fills the units given, on as many threads as it likes.
using WorkFn = std::function<void(std::span<const WorkUnit>)>;

enum class Refusal : uint8_t {
  kNoRoom,      ///< the budget has no room for the destination; tried again at the next step
  kTierUnused,  ///< the policy wants a tier that the class does not have
  kRejected,    ///< the cache refused for another reason
  kNoSource,    ///< a promotion has no finer bytes and may not be made from the codes
  kCount
};
inline constexpr size_t kRefusals = static_cast<size_t>(Refusal::kCount);
const char* refusal_name(Refusal reason);

struct TransitionCounts {
  uint64_t started = 0, published = 0, abandoned = 0;
};
struct ControllerStats {
  std::array<std::array<TransitionCounts, kTiers>, kTiers> transitions{};  ///< [from][to]
  std::array<uint64_t, kRefusals> refused{};                               ///< attempts
  uint64_t withdrawn = 0;           ///< left the queue unstarted: page gone, moved by others, or not wanted any more
  uint64_t published_pressure = 0;  ///< of the published ones, those that relieve() made
  uint64_t converted_tokens = 0;
  std::map<std::string, uint64_t> promotions;  ///< published ones, by how
  uint64_t flapped = 0;                        ///< promoted pages that were demoted less than dwell_tokens later
  uint64_t kept = 0;                           ///< demoted pages whose finer bytes the source kept
  size_t kept_now = 0;                         ///< of these, pages that still exist
  uint64_t reviews = 0;                        ///< of a sequence
  size_t pending = 0;                          ///< promotions that wait for their source now
  size_t queue_length = 0;                     ///< waiting now, pending promotions included
  size_t in_flight = 0;                        ///< started, not yet published
};

enum class Outcome : uint8_t { kPublished, kAbandoned, kRefused };
struct TransitionEvent {
  int64_t step;
  SequenceId sequence;  ///< whose queue moved the page; under pressure the first that holds it
  size_t cls;
  PageId page;
  int start;
  Tier from, to;
  const char* why;  ///< the policy's word, "pressure", or for a refusal its reason
  /// "convert", "copy" (the tiers have one layout), or for a promotion where its bytes came from: "lossy" (its codes)
  /// or the word of the source, "restore" or "recompute". A promotion refused before its source was ready says "lossy".
  const char* how;
  Outcome outcome;
  float score;                  ///< PageFeatures::score when the policy decided
  size_t from_bytes, to_bytes;  ///< slot bytes
  double microseconds;          ///< from taking the destination to publishing
};
using TraceFn = std::function<void(const TransitionEvent&)>;

class Controller {
 public:
  struct Options {
    std::vector<int> units_per_page;  ///< by class, e.g. layers * KV heads
    int review_tokens = 64;       ///< a sequence's pages are compared with the policy each so many tokens of its own
    int review_observations = 1;  ///< and when it settles after so many observations in a class
    double score_decay = 0.9;     ///< beta of equation 9; 0 <= beta < 1
    int dwell_tokens = 256;       ///< settled tokens of its sequence after which a moved page may move again
    bool allow_lossy = true;      ///< promote from the codes when there is no finer source; else refuse
    /// By class, what a slot of each tier means, e.g. its layout's fingerprint; equal numbers: units copy ("copy"
    /// instead of "convert" in traces). Empty: all differ.
    std::vector<std::array<uint64_t, kTiers>> layouts;
  };
  /// cache, policy and source must outlive the controller. source null: promotions are made from the codes.
  /// kInvalidArgument when the options do not fit the cache.
  static Result<std::unique_ptr<Controller>> create(Cache* cache, const Policy* policy, const Options& options,
                                                    TraceFn trace = nullptr, FidelitySource* source = nullptr);
  /// Abandons what is in flight; no work may be running.
  ~Controller();

  /// What one step saw: mass[i] is the share of the sequence's attention in the class that fell on entry i of
  /// cache.blocks(sequence, cls), reserved pages included. Between the step and its settle, which may drop pages from
  /// the table. kInvalidArgument, and nothing changes, for an unknown sequence or class or masses that do not fit.
  Status observe(SequenceId sequence, size_t cls, std::span<const float> mass);
  /// The average of a page as this sequence alone sees it (PageScores::score).
  float score(SequenceId sequence, size_t cls, PageId page) const;
  /// The pages that hold positions begin to end - 1 shall be anchors, now or when they exist. Truncating below a
  /// position forgets its mark. kInvalidArgument for an unknown sequence or an empty or negative span.
  Status mark(SequenceId sequence, int begin, int end);
  std::vector<Span> marks(SequenceId sequence) const;
  /// A fork or a prefix hit starts without scores and marks. This gives `to` those of `from`: scores of the pages that
  /// both hold, marks below to's length. Unknown sequences are ignored.
  void inherit(SequenceId from, SequenceId to);

  /// After every Cache::settle (tokens: how many it settled) and truncate (0): compares wanted and present tiers and
  /// queues what differs, oldest first, when a review is due.
  void settled(SequenceId sequence, int tokens = 0);

  /// At a step boundary. For every sequence that settled since the last call: publishes its conversions whose units
  /// were all handed out by an earlier call, then hands out units worth max(`budget_tokens`, the tokens it settled)
  /// more. All units go out in one call of `work`, which may return while they still run: they must be complete before
  /// the next advance, relieve, flush or collect. So a page is read in its new tier from the second step of its
  /// sequence after its last unit went out.
  void advance(int64_t step, int budget_tokens, const WorkFn& work);

  /// A reservation failed: abandons promotions in flight and finishes the demotions, then demotes pages of any sequence
  /// that the policy lets go: Recent ones, oldest first, then anchors, least valuable first, then marked pages, until
  /// start, fork and reserve have `bytes` more room or nothing is left to convert. `work` must return with its units
  /// complete. Returns the bytes gained; when 0, only finishing a sequence can help.
  size_t relieve(int64_t step, size_t bytes, const WorkFn& work);

  /// Finishes everything queued and in flight of one sequence now (room permitting), except promotions whose source is
  /// pending; `work` must return with its units complete.
  void flush(int64_t step, SequenceId sequence, const WorkFn& work);

  /// Lets go of what belongs to finished sequences and to pages that are gone. advance, relieve and flush begin with
  /// it; worth a call of its own when the last sequence finished.
  void collect();

  ControllerStats stats() const;

 private:
  struct Impl;
  explicit Controller(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::cache
