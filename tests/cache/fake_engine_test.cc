// The fake engine through everything a server does to a cache: batches, forks, aborts in the middle of a step, cuts,
// conversions by age and under pressure. Poison is on; the whole history is read again at every step.

#include "fake_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/lifecycle/age_policy.h"
#include "cache/prefix/index.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::FakeEngine;
using testing::fingerprint_config;
using testing::make;

constexpr uint32_t kSeeds = 64 / testing::kSanitizerSlowdown;

/// Recent -> Stale1 -> Stale2 by age, and all the way back up at random-looking ages, so that every pair of tiers
/// occurs.
class RestlessPolicy final : public PagePolicy {
 public:
  Wish wanted(const PageFeatures& f) const override {
    const auto has = [&](Tier t) { return f.tier_bytes[static_cast<size_t>(t)] != 0; };
    if (!f.sealed) return {f.tier, "keep"};
    if (f.relieving) return {has(Tier::kStale2) ? Tier::kStale2 : Tier::kStale1, "pressure"};
    Tier wish = Tier::kRecent;
    if (f.age_tokens >= 8) wish = Tier::kStale1;
    if (f.age_tokens >= 24) wish = Tier::kStale2;
    if (f.age_tokens >= 40 && f.start % 3 == 0) wish = Tier::kAnchor;
    if (f.age_tokens >= 56 && f.start % 5 == 0) wish = Tier::kRecent;
    return {has(wish) ? wish : f.tier, "age"};
  }
};

struct Totals {
  size_t steps = 0, refusals = 0, aborts = 0, forks = 0, cuts = 0;
  size_t mixed_hits = 0;                    ///< prefix hits on pages of several tiers
  size_t double_hits = 0;                   ///< on a page that another sequence held already
  std::array<size_t, kTiers> idle_tiers{};  ///< slots that only the cache kept, summed over the steps
  ControllerStats stats;
  PrefixStats prefix;
};

/// Prompts that begin alike: one of three documents, cut anywhere, and a question.
std::vector<int> prompt_of(std::mt19937* random) {
  const auto below = [&](int n) { return static_cast<int>((*random)() % static_cast<uint32_t>(n)); };
  const int document = below(3);
  std::vector<int> prompt;
  for (int n = 8 + below(48), i = 0; i < n; ++i) prompt.push_back(document << 16 | i);
  for (int n = 1 + below(6); n > 0; --n) prompt.push_back(below(1 << 20));
  return prompt;
}

/// With a quota, requests are prompts over a prefix cache; without, sequences start empty.
void run(uint32_t seed, const Policy& policy, size_t pages, size_t prefix_quota, Totals* totals) {
  constexpr int kUnits = 3;
  auto cache = make(fingerprint_config(pages));
  auto controller = std::move(Controller::create(cache.get(), &policy, {{kUnits, kUnits}, 4})).value();
  std::unique_ptr<PrefixIndex> index;
  if (prefix_quota != 0) {
    index = std::move(PrefixIndex::create(cache.get(), {prefix_quota, "model", "codec"})).value();
  }
  FakeEngine engine(cache.get());
  struct Request {
    std::vector<int> prompt;  ///< what is not settled yet
    std::string tenant;
  };
  std::map<SequenceId, Request> requests;
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  bool sources_intact = true;
  const WorkFn work = [&](std::span<const WorkUnit> units) {
    for (const FakeEngine::Job& job : engine.jobs(units, kUnits)) sources_intact &= FakeEngine::convert(job);
  };
  const auto any = [&] {
    auto it = engine.tokens().begin();
    std::advance(it, below(static_cast<int>(engine.tokens().size())));
    return it->first;
  };
  const auto finish = [&](SequenceId id) {
    engine.tokens().erase(id);
    requests.erase(id);
    cache->finish(id);
    if (index == nullptr) return;
    index->trim();
    EXPECT_LE(index->stats().cached_bytes + index->stats().sinks_bytes, prefix_quota);
  };
  const auto start = [&] {
    if (index == nullptr) {
      if (auto id = cache->start(); id.ok()) engine.tokens()[*id];
      return;
    }
    std::vector<int> prompt = prompt_of(&random);
    Request request{{}, below(4) == 0 ? "b" : "a"};
    const auto hit = index->start(prompt, request.tenant);
    if (!hit.ok()) return;
    request.prompt.assign(prompt.begin() + hit->tokens, prompt.end());
    prompt.resize(static_cast<size_t>(hit->tokens));
    engine.tokens()[hit->sequence] = std::move(prompt);
    requests[hit->sequence] = std::move(request);
    size_t tiers = 0, shared = 0;
    for (const BlockEntry& b : cache->blocks(hit->sequence, 0)) {
      tiers |= size_t{1} << static_cast<size_t>(b.ref.tier);
      shared += b.shared;
    }
    totals->mixed_hits += (tiers & (tiers - 1)) != 0;
    totals->double_hits += shared != 0;
  };

  for (int64_t step = 0; step < 120; ++step) {
    if (engine.tokens().empty() || below(8) == 0) start();
    if (index != nullptr && below(40) == 0) index->evict(static_cast<size_t>(below(4000)));
    if (!engine.tokens().empty() && below(6) == 0) {
      const SequenceId parent = any();
      if (auto id = cache->fork(parent); id.ok()) {
        ASSERT_EQ(engine.adopt_fork(parent, *id), "");
        if (index != nullptr) requests[*id] = requests[parent];
        ++totals->forks;
      }
    }
    if (index != nullptr && !engine.tokens().empty() && below(12) == 0) {
      const SequenceId parent = any();
      const int tokens = cache->length(parent) / 8 * 8;
      if (auto id = cache->fork(parent, tokens); id.ok()) {
        const std::vector<int>& all = engine.tokens()[parent];
        engine.tokens()[*id] = std::vector<int>(all.begin(), all.begin() + tokens);
        requests[*id] = {{}, requests[parent].tenant};
      }
    }
    if (!engine.tokens().empty() && below(12) == 0) finish(any());
    if (!engine.tokens().empty() && below(6) == 0) {
      const SequenceId id = any();
      std::vector<int>& tokens = engine.tokens()[id];
      const int keep = static_cast<int>(tokens.size()) - below(std::min<int>(12, static_cast<int>(tokens.size()) + 1));
      if (cache->truncate(id, keep).ok()) {
        tokens.resize(static_cast<size_t>(keep));
        if (index != nullptr) {
          requests[id].prompt.clear();
          index->trim();
        }
        controller->settled(id);
        ++totals->cuts;
      }
    }

    // One step of a random batch.
    std::vector<SequenceId> batch;
    std::vector<std::vector<int>> added;
    for (const auto& [id, tokens] : engine.tokens()) {
      if (below(3) == 0) continue;
      int n = below(4) == 0 ? 1 + below(20) : 1;
      const auto request = requests.find(id);
      const bool prefill = request != requests.end() && !request->second.prompt.empty();
      if (prefill) n = std::min(1 + below(20), static_cast<int>(request->second.prompt.size()));
      Status status = cache->reserve(id, n);
      while (status.code() == StatusCode::kResourceExhausted && index != nullptr &&
             index->evict(cache->shortfall(id, n)) > 0) {
        status = cache->reserve(id, n);
      }
      while (status.code() == StatusCode::kResourceExhausted &&
             controller->relieve(step, cache->shortfall(id, n), work) > 0) {
        status = cache->reserve(id, n);
      }
      if (!status.ok()) {
        ++totals->refusals;
        continue;
      }
      batch.push_back(id);
      added.emplace_back();
      for (int i = 0; i < n; ++i) {
        added.back().push_back(prefill ? request->second.prompt[static_cast<size_t>(i)] : below(1 << 20));
      }
    }
    {
      const ReadGuard guard = cache->read(batch);
      // Someone disconnects in the middle: the step still writes its rows, into slots nobody else can have got.
      std::vector<std::pair<uint8_t*, size_t>> late;
      if (!batch.empty() && below(6) == 0) {
        const size_t i = static_cast<size_t>(below(static_cast<int>(batch.size())));
        for (size_t cls = 0; cls < 2; ++cls) {
          for (const BlockEntry& b : cache->blocks(batch[i], cls)) {
            if (!b.sealed) late.emplace_back(cache->slot(cls, b.ref), cache->config().classes[cls].slot_bytes[0]);
          }
        }
        finish(batch[i]);
        batch.erase(batch.begin() + static_cast<ptrdiff_t>(i));
        added.erase(added.begin() + static_cast<ptrdiff_t>(i));
        start();
        ++totals->aborts;
      }
      for (size_t i = 0; i < batch.size(); ++i) engine.write(batch[i], added[i]);
      for (const auto& [slot, bytes] : late) std::memset(slot, 0xEE, bytes);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const int n = static_cast<int>(added[i].size());
      ASSERT_OK(cache->settle(batch[i], n));
      std::vector<int>& tokens = engine.tokens()[batch[i]];
      tokens.insert(tokens.end(), added[i].begin(), added[i].end());
      controller->settled(batch[i], n);
      if (index == nullptr) continue;
      std::vector<int>& prompt = requests[batch[i]].prompt;
      prompt.erase(prompt.begin(), prompt.begin() + std::min<ptrdiff_t>(n, static_cast<ptrdiff_t>(prompt.size())));
      ASSERT_OK(index->seal(batch[i], tokens, requests[batch[i]].tenant));
    }
    controller->advance(step, 3, work);
    ASSERT_TRUE(sources_intact) << "seed " << seed << " step " << step;
    ASSERT_EQ(engine.verify(), "") << "seed " << seed << " step " << step;
    ASSERT_OK(cache->check());
    if (index != nullptr) {
      ASSERT_OK(index->check());
      for (size_t cls = 0; cls < 2; ++cls) {
        for (size_t t = 0; t < kTiers; ++t)
          totals->idle_tiers[t] += cache->pool(cls, static_cast<Tier>(t)).slots_cached;
      }
    }
    ++totals->steps;
  }
  const ControllerStats stats = controller->stats();
  for (size_t from = 0; from < kTiers; ++from) {
    for (size_t to = 0; to < kTiers; ++to) {
      const TransitionCounts& c = stats.transitions[from][to];
      totals->stats.transitions[from][to].started += c.started;
      totals->stats.transitions[from][to].published += c.published;
      totals->stats.transitions[from][to].abandoned += c.abandoned;
    }
  }
  uint64_t in_flight = stats.in_flight;
  for (const auto& row : stats.transitions) {
    for (const TransitionCounts& c : row) in_flight -= c.started - c.published - c.abandoned;
  }
  EXPECT_EQ(in_flight, 0u) << "started = published + abandoned + in flight";
  totals->stats.published_pressure += stats.published_pressure;
  controller.reset();
  while (!engine.tokens().empty()) finish(any());
  if (index != nullptr) {
    const PrefixStats p = index->stats();
    totals->prefix.hits += p.hits;
    totals->prefix.shortened += p.shortened;
    for (size_t r = 0; r < PrefixStats::kReasons; ++r) totals->prefix.evicted_pages[r] += p.evicted_pages[r];
    index.reset();
  }
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(FakeEngine, HistoryIsIntactWithAgeing) {
  Totals totals;
  const AgePolicy policy(12);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(run(seed, policy, 14, 0, &totals));
  }
  const auto& demoted = totals.stats.transitions[0][static_cast<size_t>(Tier::kStale1)];
  EXPECT_GT(demoted.published, 8 * kSeeds);
  EXPECT_GT(demoted.abandoned, kSeeds / 8);
  EXPECT_GT(totals.stats.published_pressure, kSeeds);
  EXPECT_GT(totals.refusals, kSeeds);
  EXPECT_GT(totals.aborts, kSeeds);
  EXPECT_GT(totals.forks, kSeeds);
  EXPECT_GT(totals.cuts, kSeeds);
}

TEST(FakeEngine, HistoryIsIntactThroughEveryPairOfTiers) {
  Totals totals;
  const RestlessPolicy policy;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(run(seed, policy, 40, 0, &totals));
  }
  for (const auto& [from, to] : {std::pair{Tier::kRecent, Tier::kStale1},
                                 {Tier::kStale1, Tier::kStale2},
                                 {Tier::kStale2, Tier::kAnchor},
                                 {Tier::kAnchor, Tier::kRecent}}) {
    EXPECT_GT(totals.stats.transitions[static_cast<size_t>(from)][static_cast<size_t>(to)].published, kSeeds / 8)
        << tier_name(from) << " to " << tier_name(to);
  }
}

// serving: in-flight step writes into freed pages; claim after a tier swap; block id used as pool index after offload;
// mixed-format chain decoded with the first page's format; another request's content in the reply; eviction re-entering
// commit; host page evicted before its restore ends.
TEST(FakeEngine, HistoryIsIntactOnPrefixHitsInMixedTiers) {
  Totals totals;
  const AgePolicy ageing(12);
  const RestlessPolicy restless;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(run(seed, ageing, 16, 3000, &totals));
    ASSERT_NO_FATAL_FAILURE(run(seed, restless, 40, 12000, &totals));
  }
  EXPECT_GT(totals.prefix.hits, 4 * kSeeds);
  EXPECT_GT(totals.mixed_hits, kSeeds / 2);
  EXPECT_GT(totals.double_hits, kSeeds / 2);
  EXPECT_GT(totals.prefix.shortened, 0u);
  EXPECT_GT(totals.prefix.evicted_pages[PrefixStats::kQuota], kSeeds);
  EXPECT_GT(totals.prefix.evicted_pages[PrefixStats::kPressure], kSeeds);
  for (const Tier tier : {Tier::kRecent, Tier::kStale1, Tier::kStale2}) {
    EXPECT_GT(totals.idle_tiers[static_cast<size_t>(tier)], 0u) << tier_name(tier);
  }
  EXPECT_GT(totals.aborts, kSeeds);
  EXPECT_GT(totals.cuts, kSeeds);
}

}  // namespace
}  // namespace varve::cache
