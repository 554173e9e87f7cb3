#pragma once
// The engine: one model, one profile, many sessions over one KV cache. Not thread-safe: one caller at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/profile.h"
#include "varve/stats.h"
#include "varve/status.h"
#include "varve/step_times.h"

namespace varve {

namespace model {
class Model;
}

using SessionId = uint64_t;

/// One page's birth, move between tiers, refused move, or end.
struct Transition {
  int64_t step = 0;
  SessionId session = 0;  ///< on whose behalf
  uint64_t page = 0;
  int page_start = 0;  ///< position of the page's first token
  int window = 0;      ///< of the page's attention class; 0: full attention
  std::string from;    ///< tier; empty: the page sealed or was installed by a prefix hit
  std::string to;      ///< tier; empty: the session let go of the page
  std::string why;     ///< "sealed", "hit", "age", "score", "marked", "faded", "pressure", "finished", "truncated", ...
  /// Where the bytes came from: "append", "reference", "convert", "copy", "restore", "recompute", "lossy"; "release".
  std::string how;
  std::string outcome;  ///< "published", "abandoned", "refused"
  double score = 0;     ///< moving average of the page's share of the attention mass
  size_t from_bytes = 0, to_bytes = 0;
  double microseconds = 0;  ///< from taking the destination to publishing
};

struct EngineOptions {
  Profile profile;
  int threads = 0;             ///< 0: the number of processors
  int context_tokens = 0;      ///< most tokens of one session; 0: what the model was trained on
  int chunk_tokens = 512;      ///< most rows of one step: prefill runs in chunks of this size
  size_t kv_budget_bytes = 0;  ///< of pages and strips; 0: three quarters of the memory that is free now
  /// Most bytes of pages that stay, inside the budget, when their sessions are gone, for sessions that begin with the
  /// same tokens (open()); 0: none stay.
  size_t prefix_cache_bytes = 0;
  size_t refinement_bytes = 0;  ///< most bytes of scoring.restore "host" or "disk"; 0: as many as the KV budget
  /// Directory of the file of scoring.restore "disk", made when scoring is on. The file has no name: it is gone with
  /// the engine. On a file system in memory (tmpfs) "disk" saves nothing.
  std::string refinement_dir = "/var/tmp";
  std::string kernel;  ///< force a kernel table ("generic", "avx2" ...); empty: the best
  /// Weight products of feeds of 64 tokens and more: "auto" decodes weights to fp32 where that is faster than ggml's
  /// kernels, which round activations to 8 bits; "ggml" is what libllama computes; "fp32" decodes every weight that was
  /// not repacked, so that a small change of the cache is a small change of the logits.
  std::string weight_gemm = "auto";
  bool poison_freed = false;  ///< tests: overwrite freed pages
  std::function<void(const Transition&)> on_transition;  ///< called between steps
};

struct OpenOptions {
  /// Sessions of different tenants never share a page.
  std::string tenant;
  /// Most tokens the session will have; 0: unknown. When given, the session is admitted only if it fits the budget
  /// beside what the other open sessions were promised (equation 14), so that none of them is refused later.
  int expected_tokens = 0;
};

struct Opened {
  SessionId session = 0;
  int cached_tokens = 0;  ///< of the prompt, found in the prefix cache; feed the rest
  int lost_tokens = 0;    ///< found as well, but unusable: a sliding window needs keys that are gone
};

enum class Logits {
  kNone,
  kLast,  ///< one row: after the last token fed
  kAll,   ///< one row per token fed
};

/// Tokens for one session in one step.
struct Feed {
  SessionId session = 0;
  std::span<const int32_t> tokens;
  Logits want = Logits::kLast;
  /// With a router: the last so many tokens attend to all pages. -1: none of a feed of at most four tokens (decode),
  /// router.question_tokens of a longer one that wants logits, else none.
  int full_rows = -1;
};

class Engine {
 public:
  /// Shares the weights with any other engine over the same model.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<model::Model> model, const EngineOptions& options);
  ~Engine();

  Result<SessionId> start();
  /// A session that will read `prompt`: starts with the longest prefix (whole pages, at most all tokens but one) that
  /// an earlier session of the tenant has left in the prefix cache, in place, in whatever tiers its pages are.
  /// kContextOverflow when the prompt is longer than the context; kResourceExhausted, with the numbers, when
  /// expected_tokens do not fit.
  Result<Opened> open(std::span<const int32_t> prompt, const OpenOptions& options = {});
  /// Pages that overlap positions [begin, end) are anchors as long as the session lives (system prompt, quoted
  /// evidence). Without an anchor tier in the profile nothing happens. May lie ahead of what is fed.
  Status mark(SessionId session, int begin, int end);
  /// A session with the same tokens: sealed pages are shared, the unsealed rest is copied.
  Result<SessionId> fork(SessionId session);
  /// A session with the tokens of a session of a dense engine over the same model, whose rows are taken from there
  /// instead of computed: appended, sealed and converted by this engine's own rules, in chunks of chunk_tokens(). As
  /// after a feed, conversions of the last chunk may still be under way; a fork finishes them. What later tokens lose is
  /// then the formats' doing alone, while a session that was fed has keys and values that attention over coded pages
  /// brought forth. No attention is scored meanwhile, and the prefix cache never keeps the session's pages. Rows below
  /// every window that the dense engine has let go of are lost rows (NaN keys) that nothing reads.
  /// kInvalidArgument: another model, an engine that is not dense, no such session, or this very engine;
  /// kContextOverflow, kResourceExhausted with the numbers.
  Result<SessionId> adopt(const Engine& dense, SessionId session);
  /// Keys (after RoPE) and values of positions [begin, end) of one model layer in a session of a dense engine, for
  /// whoever measures formats: k, v become [end - begin][kv_heads][head_dim]. Where a sliding window has let a row go,
  /// its key is NaN and its value 0. kInvalidArgument: not a dense engine, no such session, layer or positions.
  Status read_rows(SessionId session, int layer, int begin, int end, std::vector<float>& k,
                   std::vector<float>& v) const;
  /// Frees what only this session holds. Unknown ids are ignored.
  void finish(SessionId session);
  /// Keeps at most the first `tokens` tokens; returns how many could be kept (a sealed tile cannot be cut, so the
  /// cut moves back to a page start, and the caller feeds the difference again).
  Result<int> truncate(SessionId session, int tokens);

  /// How many tokens one step may feed the session so that truncate() can take back all but the first `keep` of them
  /// exactly, and each of them attends to what it would attend to fed alone, but for pages that change tier meanwhile.
  /// Not more than the context and a step hold; 0 for an unknown session.
  int revocable_tokens(SessionId session, int keep) const;

  /// One step for several sessions, at most chunk_tokens() rows in all. On an error nothing has changed.
  /// logits: rows in feed order, [rows wanted][vocabulary]; resized.
  Status step(std::span<const Feed> feeds, std::vector<float>& logits);

  /// Feeds any number of tokens in chunks. progress(done, total); false cancels (kCancelled; what is fed stays).
  Status feed(SessionId session, std::span<const int32_t> tokens, Logits want, std::vector<float>& logits,
              const std::function<bool(int, int)>& progress = {});

  /// Until told otherwise (null), steps add where their time went to *times, which outlives that. The probes cost a
  /// step about a barrier for every few graph nodes; without them no clock is read.
  void time_steps(StepTimes* times);

  /// Tokens settled in the session, in order.
  std::span<const int32_t> tokens(SessionId session) const;
  int context_tokens() const;
  int chunk_tokens() const;
  int vocabulary() const;
  const Profile& profile() const;
  const std::shared_ptr<model::Model>& model() const;
  EngineStats stats() const;
  /// Idle check of every pool's invariants.
  Status check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Engine();
};

}  // namespace varve
