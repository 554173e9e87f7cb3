#pragma once
// The prefix cache: which sealed pages hold which tokens, so that a prompt that begins alike starts from them. It owns
// pages (one cache reference each, Cache::hold), never slots, and never looks at bytes. CONTRACT.md, "Prefix cache".

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/cache.h"
#include "cache/prefix/key.h"
#include "varve/status.h"

namespace varve::cache {

/// What a request starts with.
struct PrefixHit {
  SequenceId sequence = 0;
  int tokens = 0;  ///< settled from the cache; 0: a miss, a plain start
  int lost_tokens =
      0;             ///< bound tokens beyond `tokens` that were of no use: a class with a window lacks its window there
  size_t pages = 0;  ///< referenced, of all classes
};

struct PrefixStats {
  enum Reason : size_t { kQuota, kPressure, kReasons };
  size_t entries = 0;
  size_t bound_pages = 0;
  uint64_t hits = 0;            ///< starts with tokens > 0
  uint64_t hit_tokens = 0;      ///< sum of their tokens
  uint64_t misses = 0;          ///< starts with tokens = 0
  uint64_t shortened = 0;       ///< starts, hits and misses, with lost_tokens > 0
  uint64_t lost_tokens = 0;     ///< sum of theirs
  uint64_t collisions = 0;      ///< a key that names other tokens: the chain ends there
  uint64_t held_elsewhere = 0;  ///< a page that another chain has bound already (two tenants of one forked sequence)
  uint64_t over_quota = 0;      ///< first chunks not bound since the quota has no room for their sinks
  std::array<uint64_t, kReasons> evicted_entries{};
  std::array<uint64_t, kReasons> evicted_pages{};  ///< window pages taken from entries that stay are counted here too
  size_t cached_bytes = 0;                         ///< of slots that only the cache keeps
  size_t sinks_bytes = 0;                          ///< of the copies of sinks, in host memory beside the cache's budget
  size_t quota_bytes = 0;  ///< cached_bytes + sinks_bytes <= quota_bytes after trim() and seal()
};

/// An index over one Cache, which must outlive it and whose hold() nobody else may call. Chains of chunks: a chunk is
/// the least number of tokens that fills whole pages in every class. Not thread safe; everything depends only on the
/// order of calls.
///
/// Eviction takes the least valuable chunk first, only from the end of a chain, so that what remains can be reached.
///   value = tick of the last use + kTicksPerHit * min(hits, kMostHits);   a tick is one call of start()
/// Recency alone would let one pass of unrelated long prompts flush the system prompt that every other request uses;
/// the bonus lets a chunk that has been hit outlive up to kTicksPerHit * kMostHits requests more, and no longer,
/// however popular it was. Pages of a window matter only to hits that end within the window after them. They have a
/// value of their own, by the same formula and not below that of a chain's end which needs them, and are taken out of
/// chunks that stay; a chunk at which no hit can end any more and that leads nowhere is worth 0.
class PrefixIndex {
 public:
  static constexpr uint64_t kTicksPerHit = 4, kMostHits = 8;

  struct Options {
    size_t quota_bytes = 0;  ///< of slots that only the cache keeps, and copies of sinks; 0: nothing is ever bound
    std::string model_digest;
    std::string codec_fingerprint;
    KeyFn key = prefix_key;  ///< tests force collisions
  };

  /// kInvalidArgument: an empty digest or fingerprint (two models would share), or page sizes whose common multiple
  /// does not fit an int.
  static Result<std::unique_ptr<PrefixIndex>> create(Cache* cache, Options options);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  /// A new sequence on the longest bound prefix of at most prompt.size() - 1 tokens (the last one must be computed to
  /// get logits). Token ids are compared chunk by chunk; at a collision the prefix ends. Without room for the strips,
  /// idle chunks are evicted, those of the hit last. kResourceExhausted as Cache::start.
  Result<PrefixHit> start(std::span<const int32_t> prompt, std::string_view tenant);

  /// After each settle(): binds every chunk that is whole now. Costs hashing of the new chunks only. Equal chunks that
  /// are bound already stay, and the sequence's own pages stay private; they fill in for pages that the chunk lacks.
  /// @param tokens all tokens of the sequence, at least its settled length
  /// @return kInvalidArgument for an unknown sequence or too few tokens
  Status seal(SequenceId sequence, std::span<const int32_t> tokens, std::string_view tenant);

  /// Evicts chunks that no sequence holds until `bytes` of slots are free again or nothing is left to evict.
  /// @return bytes of slots freed
  size_t evict(size_t bytes);

  /// Brings the bytes that only the cache keeps under the quota. To be called whenever a sequence has let pages go:
  /// finish, truncate, settle in a class with a window.
  void trim();

  int chunk_tokens() const { return chunk_tokens_; }
  PrefixStats stats() const;
  /// Tests and idle checks: recounts the index and compares it with the cache. kInternal names the first contradiction.
  Status check() const;

 private:
  struct Use {
    uint64_t tick = 0, hits = 0;
    uint64_t value() const { return tick + kTicksPerHit * (hits < kMostHits ? hits : kMostHits); }
  };
  struct Entry {
    uint64_t number = 0;  ///< of creation; a parent's is lower than its children's
    std::string key, tenant;
    Entry* parent = nullptr;
    std::vector<int32_t> ids;
    int end = 0;                              ///< position after its last token
    std::vector<std::vector<PageId>> pages;   ///< per class; 0: not bound, only in classes with a window
    std::vector<std::vector<uint8_t>> sinks;  ///< per class, of a first chunk
    size_t children = 0;
    Use use, window_use;
    bool pinned = false;  ///< a hit is being installed on it
    // Scratch of reclaim():
    bool covers_idle = false;  ///< it or a chunk before it has a page that only the cache keeps
    uint64_t end_value = 0;    ///< most valuable end of a chain that needs its windows; 0: none
  };
  /// How far a sequence's chunks have been looked up.
  struct Cursor {
    std::string tenant;
    std::vector<std::string> keys;
    uint64_t number = 0;   ///< of the entry of keys.back()
    int checked = 0;       ///< tokens looked at, and
    PageId last = 0;       ///< the page before that position: another one means that tokens were forgotten since
    bool blocked = false;  ///< the next chunk cannot be bound
  };
  using Reason = PrefixStats::Reason;

  PrefixIndex(Cache* cache, Options options, int chunk_tokens);

  const std::vector<ClassConfig>& classes() const { return cache_->config().classes; }
  int pages_per_chunk(size_t cls) const { return chunk_tokens_ / classes()[cls].page_tokens; }
  std::string key_of(const Entry* parent, std::string_view tenant, std::span<const int32_t> ids) const;
  Entry* find(const std::string& key) const;
  static bool same(const Entry& entry, const Entry* parent, std::string_view tenant, std::span<const int32_t> ids);
  /// The chain of bound chunks that the prompt begins with. *collided: a key named other tokens.
  std::vector<Entry*> match(std::span<const int32_t> prompt, std::string_view tenant, bool* collided) const;
  /// The first position whose pages in a class with a window a start at `tokens` needs; `tokens` when there is none.
  int windows_from(int tokens) const;
  /// Whether a sequence can start at the end of the chunk: the windows there are bound.
  bool ends_hit(const Entry& last) const;
  PrefixPages pages_of(std::span<Entry* const> path) const;
  void touch(std::span<Entry* const> path);
  PageId witness(SequenceId sequence, int tokens) const;

  bool resumes(const Cursor& cursor, SequenceId sequence, std::string_view tenant) const;
  bool advance(SequenceId sequence, std::span<const int32_t> tokens, Cursor* cursor);
  Entry* bind(SequenceId sequence, Entry* parent, std::string_view tenant, std::span<const int32_t> ids,
              std::string key, int start);
  void fill_in(SequenceId sequence, int start, Entry* entry);

  bool live(const Entry& entry) const;
  bool has_idle(const Entry& entry, bool windows_only) const;
  void thin(Entry* entry, Reason reason);
  void remove(Entry* entry);
  /// Evicts until enough() or nothing is left. with_live: chunks that sequences hold as well, where that uncovers idle
  /// ones before them.
  template <typename Enough>
  void reclaim(const Enough& enough, Reason reason, bool with_live);
  template <typename Enough>
  void keep_to_quota(const Enough& enough);
  size_t quota_use() const { return cache_->cached_bytes() + counts_.sinks_bytes; }

  Cache* const cache_;
  const Options options_;
  const int chunk_tokens_;
  size_t witness_class_ = 0;  ///< the class that forgets last
  std::map<uint64_t, std::unique_ptr<Entry>> entries_;
  std::unordered_map<std::string, Entry*> by_key_;  ///< looked up, never walked
  std::map<SequenceId, Cursor> cursors_;
  uint64_t next_number_ = 1;
  uint64_t tick_ = 1;  ///< so that every value is above 0
  PrefixStats counts_;
};

}  // namespace varve::cache
