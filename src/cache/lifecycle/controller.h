#pragma once
// Moves pages to the tiers a policy wants, in slices counted in tokens per step, published at step boundaries.
//
// Every sequence has its own queue and its own budget, which it earns by settling, so that the moment one of its pages
// changes does not depend on its batch neighbours. Exceptions, both visible: a page that several sequences hold moves
// when the shortest of them says so, and relieve() converts whose pages are oldest (why = "pressure").

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache.h"
#include "cache/lifecycle/policy.h"

namespace varve::cache {

/// One independent part of one conversion, e.g. the planes of one KV head of one layer. The units of a conversion write
/// disjoint parts of dst.
struct WorkUnit {
  size_t cls;
  PageId page;
  Tier from, to;
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
  size_t queue_length = 0;  ///< waiting now
  size_t in_flight = 0;     ///< started, not yet published
};

enum class Outcome : uint8_t { kPublished, kAbandoned, kRefused };
struct TransitionEvent {
  int64_t step;
  size_t cls;
  PageId page;
  int start;
  Tier from, to;
  const char* why;  ///< the policy's word, "pressure", or for a refusal its reason
  Outcome outcome;
  size_t from_bytes, to_bytes;  ///< slot bytes
  double microseconds;          ///< from taking the destination to publishing
};
using TraceFn = std::function<void(const TransitionEvent&)>;

class Controller {
 public:
  struct Options {
    std::vector<int> units_per_page;  ///< by class, e.g. layers * KV heads
    int review_tokens = 64;  ///< a sequence's pages are compared with the policy each so many tokens of its own
  };
  /// cache and policy must outlive the controller. kInvalidArgument when the options do not fit the cache.
  static Result<std::unique_ptr<Controller>> create(Cache* cache, const Policy* policy, const Options& options,
                                                    TraceFn trace = nullptr);
  /// Abandons what is in flight; no work may be running.
  ~Controller();

  /// After every Cache::settle or truncate: compares wanted and present tiers and queues what differs, oldest first.
  void settled(SequenceId sequence);

  /// At a step boundary. For every sequence that settled since the last call: publishes its conversions whose units
  /// were all handed out by an earlier call, then hands out units worth `budget_tokens` more. All units go out in one
  /// call of `work`, which may return while they still run: they must be complete before the next call of any member
  /// but stats(). So a page is read in its new tier from the second step of its sequence after its last unit went out.
  void advance(int64_t step, int budget_tokens, const WorkFn& work);

  /// A reservation failed: finishes conversions now, those in flight first, then the oldest pages of any sequence that
  /// the policy lets go, until start, fork and reserve have `bytes` more room or nothing is left to convert. `work`
  /// must return with its units complete. Returns the bytes gained; when 0, only finishing a sequence can help.
  size_t relieve(int64_t step, size_t bytes, const WorkFn& work);

  /// Finishes everything queued and in flight of one sequence now (room permitting); `work` must return with its units
  /// complete.
  void flush(int64_t step, SequenceId sequence, const WorkFn& work);

  ControllerStats stats() const;

 private:
  struct Impl;
  explicit Controller(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::cache
