#pragma once
// An engine whose "KV" is a fingerprint of (token, position, class, tier, slot generation), written into the slots as a
// model would write keys and re-read whole at every step. A row in the wrong place, of another sequence, from another
// tier or from an earlier life of the slot is a wrong fingerprint.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "cache/lifecycle/controller.h"
#include "testing.h"

namespace varve::cache::testing {

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t fingerprint(int token, int position, size_t cls, Tier tier, uint32_t generation) {
  uint64_t x = mix(static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15u);
  x = mix(x ^ static_cast<uint64_t>(position));
  x = mix(x ^ (static_cast<uint64_t>(cls) << 8 | static_cast<uint64_t>(tier)));
  return mix(x ^ generation);
}

/// Bytes of one row per tier: a lower tier keeps less of the fingerprint.
inline constexpr std::array<size_t, kTiers> kRowBytes = {8, 8, 4, 2};

inline void write_row(uint8_t* slot, Tier tier, int row, uint64_t print) {
  const size_t bytes = kRowBytes[static_cast<size_t>(tier)];
  std::memcpy(slot + static_cast<size_t>(row) * bytes, &print, bytes);
}

inline bool row_is(const uint8_t* slot, Tier tier, int row, uint64_t print) {
  const size_t bytes = kRowBytes[static_cast<size_t>(tier)];
  return std::memcmp(slot + static_cast<size_t>(row) * bytes, &print, bytes) == 0;
}

/// Positions whose rows are kept in the strip too, as attention sinks are.
inline constexpr int kSinks = 2;

/// A full class with pages of 8 tokens and every tier, a sliding one with pages of 4, window 10 and two tiers.
inline Config fingerprint_config(size_t pages) {
  Config config;
  ClassConfig full;
  full.page_tokens = 8;
  full.strip_bytes = 64;
  full.sink_bytes = kSinks * 8;
  ClassConfig sliding;
  sliding.page_tokens = 4;
  sliding.window = 10;
  for (size_t t = 0; t < kTiers; ++t) full.slot_bytes[t] = 8 * kRowBytes[t] * 16;
  for (const size_t t : {0, 2}) sliding.slot_bytes[t] = 4 * kRowBytes[t] * 16;
  config.classes = {full, sliding};
  config.budget_bytes = pages * full.slot_bytes[0];
  config.poison = true;
  return config;
}

class FakeEngine {
 public:
  explicit FakeEngine(Cache* cache) : cache_(cache) {}

  std::map<SequenceId, std::vector<int>>& tokens() { return tokens_; }

  /// Writes what a model would write for the reserved rows.
  void write(SequenceId id, std::span<const int> added) {
    const int past = cache_->length(id);
    for (size_t cls = 0; cls < cache_->config().classes.size(); ++cls) {
      for (int p = past; p < kSinks && p - past < static_cast<int>(added.size()) && cache_->strip(id, cls); ++p) {
        write_row(cache_->strip(id, cls), Tier::kRecent, p, sink_print(added[static_cast<size_t>(p - past)], p, cls));
      }
      for (const BlockEntry& b : cache_->blocks(id, cls)) {
        uint8_t* slot = cache_->slot(cls, b.ref);
        for (int row = 0; row < cache_->config().classes[cls].page_tokens; ++row) {
          const int i = b.start + row - past;
          if (i < 0 || i >= static_cast<int>(added.size())) continue;
          write_row(slot, b.ref.tier, row,
                    fingerprint(added[static_cast<size_t>(i)], b.start + row, cls, b.ref.tier, b.ref.generation));
        }
      }
    }
  }

  /// A fork's unsealed page is a byte copy, so it carries the fingerprints of the parent's slot; checks them and signs
  /// the rows anew for the slot they are in now.
  std::string adopt_fork(SequenceId parent, SequenceId child) {
    tokens_[child] = tokens_[parent];
    for (size_t cls = 0; cls < cache_->config().classes.size(); ++cls) {
      const auto from = cache_->blocks(parent, cls), to = cache_->blocks(child, cls);
      if (to.empty() || to.back().sealed) continue;
      const PageRef& source = from[to.size() - 1].ref;
      for (int row = 0; row < to.back().tokens; ++row) {
        const int position = to.back().start + row;
        const int token = tokens_[child][static_cast<size_t>(position)];
        uint8_t* slot = cache_->slot(cls, to.back().ref);
        if (!row_is(slot, source.tier, row, fingerprint(token, position, cls, source.tier, source.generation))) {
          return "the fork's open page is not a copy at position " + std::to_string(position);
        }
        write_row(slot, Tier::kRecent, row, fingerprint(token, position, cls, Tier::kRecent, to.back().ref.generation));
      }
    }
    return "";
  }

  /// Re-reads the whole history of every sequence through its block tables, and every sealed page that is alive,
  /// whoever owns it.
  std::string verify() {
    note_pages();
    if (std::string wrong = verify_sequences(); !wrong.empty()) return wrong;
    for (auto it = written_.begin(); it != written_.end();) {
      const std::optional<PageInfo> page = cache_->page(it->first);
      if (!page) {
        it = written_.erase(it);
        continue;
      }
      for (size_t row = 0; row < it->second.size(); ++row) {
        const int r = static_cast<int>(row);
        if (!row_is(cache_->slot(page->cls, page->ref), page->ref.tier, r,
                    fingerprint(it->second[row], page->start + r, page->cls, page->ref.tier, page->ref.generation))) {
          return "page " + std::to_string(it->first) + " at " + std::to_string(page->start) + " in " +
                 tier_name(page->ref.tier) + (page->requests == 0 ? ", which only the cache owns," : "") +
                 " is not what was written";
        }
      }
      ++it;
    }
    return "";
  }

  std::string verify_sequences() {
    for (const auto& [id, tokens] : tokens_) {
      if (cache_->length(id) != static_cast<int>(tokens.size())) return "a length differs";
      for (size_t cls = 0; cls < cache_->config().classes.size(); ++cls) {
        const ClassConfig& config = cache_->config().classes[cls];
        const int sinks = cache_->strip(id, cls) ? std::min(kSinks, static_cast<int>(tokens.size())) : 0;
        for (int p = 0; p < sinks; ++p) {
          if (!row_is(cache_->strip(id, cls), Tier::kRecent, p, sink_print(tokens[static_cast<size_t>(p)], p, cls))) {
            return "sequence " + std::to_string(id) + " has other sinks than it wrote";
          }
        }
        int covered = 0;
        for (const BlockEntry& b : cache_->blocks(id, cls)) {
          if (covered == 0) covered = b.start;
          if (b.start != covered && b.tokens != 0) return "a gap in the block table";
          covered += b.tokens;
          const uint8_t* slot = cache_->slot(cls, b.ref);
          if (slot == nullptr) return "a block refers to a freed slot";
          for (int row = 0; row < b.tokens; ++row) {
            const int position = b.start + row;
            const uint64_t print =
                fingerprint(tokens[static_cast<size_t>(position)], position, cls, b.ref.tier, b.ref.generation);
            if (!row_is(slot, b.ref.tier, row, print)) {
              return "sequence " + std::to_string(id) + " class " + std::to_string(cls) + " position " +
                     std::to_string(position) + " in " + tier_name(b.ref.tier) + " is not what was written";
            }
          }
        }
        const auto blocks = cache_->blocks(id, cls);
        const int first = blocks.empty() ? 0 : blocks.front().start;
        const int needed = config.window == 0 ? 0 : std::max(0, static_cast<int>(tokens.size()) - config.window + 1);
        if (!tokens.empty() && (first > needed || covered != static_cast<int>(tokens.size()))) {
          return "positions are missing from a block table";
        }
      }
    }
    return "";
  }

  /// What a conversion needs to know of a page, copied out of the tables so that another thread can work on it.
  struct Job {
    const uint8_t* src;
    uint8_t* dst;
    size_t cls;
    int start;
    PageRef from, to;
    std::vector<std::pair<int, int>> rows;  ///< (row, token)
  };

  /// Unit u of n covers the rows r with r % n == u. Units of a page that neither a sequence nor the cache owns any more
  /// are left out.
  std::vector<Job> jobs(std::span<const WorkUnit> units, int units_per_page) const {
    std::vector<Job> out;
    for (const WorkUnit& u : units) {
      const PageInfo page = *cache_->page(u.page);
      if (page.holder == 0 && !page.cached) continue;
      Job job{u.src, u.dst, u.cls, u.start, page.ref, page.destination, {}};
      for (int row = u.unit; row < cache_->config().classes[u.cls].page_tokens; row += units_per_page) {
        job.rows.emplace_back(row, page.holder != 0 ? tokens_.at(page.holder)[static_cast<size_t>(u.start + row)]
                                                    : written_.at(u.page)[static_cast<size_t>(row)]);
      }
      out.push_back(std::move(job));
    }
    return out;
  }

  /// Reads each row of the source, and writes what it says into the destination in the new tier's form. False when a
  /// source row is not what was written there. Touches only the two slots.
  static bool convert(const Job& job) {
    for (const auto& [row, token] : job.rows) {
      const int position = job.start + row;
      if (!row_is(job.src, job.from.tier, row,
                  fingerprint(token, position, job.cls, job.from.tier, job.from.generation))) {
        return false;
      }
      write_row(job.dst, job.to.tier, row, fingerprint(token, position, job.cls, job.to.tier, job.to.generation));
    }
    return true;
  }

 private:
  static uint64_t sink_print(int token, int position, size_t cls) {
    return fingerprint(token, position, cls, Tier::kCount, 0);
  }

  /// What the sealed pages hold, for when no sequence is left to ask.
  void note_pages() {
    for (const auto& [id, tokens] : tokens_) {
      for (size_t cls = 0; cls < cache_->config().classes.size(); ++cls) {
        for (const BlockEntry& b : cache_->blocks(id, cls)) {
          if (!b.sealed) continue;
          const auto first = tokens.begin() + b.start;
          written_.try_emplace(b.page, first, first + b.tokens);
        }
      }
    }
  }

  Cache* cache_;
  std::map<SequenceId, std::vector<int>> tokens_;
  std::map<PageId, std::vector<int>> written_;
};

}  // namespace varve::cache::testing
