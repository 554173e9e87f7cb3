// Conversion slices filled by another thread while the engine's thread steps: reads sources, appends, forks, finishes.
// Run under ThreadSanitizer to see that no slot is written by one thread while the other may use it.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/lifecycle/age_policy.h"
#include "cache/lifecycle/score_policy.h"
#include "cache/store/memory_store.h"
#include "cache/store/stored_refinements.h"
#include "fake_engine.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::FakeEngine;
using testing::fingerprint_config;
using testing::make;

/// One thread that works off jobs in order; wait() returns when all are done. A job says whether its source was what
/// its holders wrote.
class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  void add(std::function<bool()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_all();
  }
  /// True when every job said so.
  bool wait() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return jobs_.empty() && !busy_; });
    return intact_;
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<bool()> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      const bool intact = job();
      std::this_thread::yield();
      lock.lock();
      busy_ = false;
      intact_ &= intact;
      idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<bool()>> jobs_;
  bool busy_ = false, stop_ = false, intact_ = true;
  std::thread thread_;
};

TEST(Slices, FilledByAWorkerWhileTheEngineSteps) {
  constexpr int kUnits = 4;
  auto cache = make(fingerprint_config(64));
  const AgePolicy policy(8);
  auto controller = std::move(Controller::create(cache.get(), &policy, {{kUnits, kUnits}, 4})).value();
  FakeEngine engine(cache.get());
  Worker worker;
  const WorkFn start_work = [&](std::span<const WorkUnit> units) {
    for (const FakeEngine::Job& job : engine.jobs(units, kUnits))
      worker.add([job] { return FakeEngine::convert(job); });
  };

  std::vector<SequenceId> ids = {*cache->start(), *cache->start()};
  for (const SequenceId id : ids) engine.tokens()[id];
  for (int step = 0; step < 200; ++step) {
    // The worker still fills slices of the last boundary during all of this.
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<int> added = {step * 10 + static_cast<int>(i), step};
      ASSERT_OK(cache->reserve(ids[i], 2));
      const ReadGuard guard = cache->read(ids);
      engine.write(ids[i], added);
      ASSERT_OK(cache->settle(ids[i], 2));
      engine.tokens()[ids[i]].insert(engine.tokens()[ids[i]].end(), added.begin(), added.end());
      controller->settled(ids[i], 2);
    }
    ASSERT_EQ(engine.verify(), "") << "step " << step;  // reads the sources the worker reads
    if (step % 20 == 10) {
      auto child = cache->fork(ids[0]);
      ASSERT_OK(child.status());
      ASSERT_EQ(engine.adopt_fork(ids[0], *child), "");
      // The parent goes while its pages are being converted.
      engine.tokens().erase(ids[0]);
      cache->finish(ids[0]);
      ids[0] = *child;
    }
    if (step % 50 == 49) {
      engine.tokens().erase(ids[1]);
      cache->finish(ids[1]);
      ids[1] = *cache->start();
      engine.tokens()[ids[1]];
    }
    ASSERT_TRUE(worker.wait());
    controller->advance(step, 3, start_work);
  }
  ASSERT_TRUE(worker.wait());
  const auto demoted =
      controller->stats().transitions[static_cast<size_t>(Tier::kRecent)][static_cast<size_t>(Tier::kStale1)];
  EXPECT_GT(demoted.published, 20u);
  controller.reset();
  ASSERT_EQ(engine.verify(), "");
  ASSERT_OK(cache->check());
}

/// What the row of a position says, whoever holds it: 8 bytes in a fine tier, the first 4 of them in a stale one.
uint64_t print_of(int position) { return testing::mix(static_cast<uint64_t>(position) + 0x9e3779b97f4a7c15u); }
size_t row_bytes(Tier tier) { return tier <= Tier::kAnchor ? 8 : 4; }
bool says(const uint8_t* slot, Tier tier, int row, int position) {
  const uint64_t print = print_of(position);
  return std::memcmp(slot + row_bytes(tier) * static_cast<size_t>(row), &print, row_bytes(tier)) == 0;
}

TEST(Slices, PromotionsAreFilledFromRefinementsWhileReadersRead) {
  constexpr int kPage = 4;
  Config config;
  ClassConfig full;
  full.page_tokens = kPage;
  full.slot_bytes = {256, 256, 64, 0};
  config.classes = {full};
  config.budget_bytes = 256 * 64;
  config.poison = true;
  auto cache = make(config);
  MemoryStore store(1 << 20);
  StoredRefinements source(&store);
  const ScorePolicy policy({.recent_tokens = 8, .anchor_tokens = 3 * kPage, .enter_ratio = 1.1});
  auto controller =
      std::move(
          Controller::create(cache.get(), &policy,
                             {.units_per_page = {kPage}, .review_tokens = 4, .score_decay = 0.5, .dwell_tokens = 4},
                             nullptr, &source))
          .value();
  Worker worker;
  const WorkFn start_work = [&](std::span<const WorkUnit> units) {
    for (const WorkUnit& u : units) {
      worker.add([u] {
        const int position = u.start + u.unit;
        const uint64_t print = print_of(position);
        const bool intact = says(u.src, u.from, u.unit, position);
        std::memcpy(u.dst + row_bytes(u.to) * static_cast<size_t>(u.unit), &print, row_bytes(u.to));
        return intact;
      });
    }
  };

  std::vector<SequenceId> ids = {*cache->start(), *cache->start()};
  for (int step = 0; step < 240; ++step) {
    // The worker still fills slices of the last boundary, out of slots and out of the source's buffers.
    for (const SequenceId id : ids) {
      ASSERT_OK(cache->reserve(id, 1));
      const ReadGuard guard = cache->read(ids);
      const int length = cache->length(id);
      for (const BlockEntry& b : cache->blocks(id, 0)) {
        uint8_t* slot = cache->slot(0, b.ref);
        for (int row = 0; row < kPage && b.start + row < length; ++row) {
          ASSERT_TRUE(says(slot, b.ref.tier, row, b.start + row))
              << "step " << step << " position " << b.start + row << " in " << tier_name(b.ref.tier);
        }
        if (length < b.start || length >= b.start + kPage) continue;
        const uint64_t print = print_of(length);
        std::memcpy(slot + 8 * (length - b.start), &print, 8);
      }
      const size_t pages = cache->blocks(id, 0).size();
      std::vector<float> mass(pages, 0.0f);
      mass[static_cast<size_t>(step / 12 * 5) % pages] = 1.0f;
      ASSERT_OK(controller->observe(id, 0, mass));
      ASSERT_OK(cache->settle(id, 1));
      controller->settled(id, 1);
    }
    if (step % 40 == 39) {  // the holder of pages in flight goes
      const SequenceId child = *cache->fork(ids[0]);
      cache->finish(ids[0]);
      ids[0] = child;
    }
    if (step == 150) {
      cache->finish(ids[1]);
      ids[1] = *cache->start();
    }
    ASSERT_TRUE(worker.wait());
    controller->advance(step, 3, start_work);
  }
  ASSERT_TRUE(worker.wait());
  const ControllerStats stats = controller->stats();
  EXPECT_GT(stats.promotions.at("restore"), 5u);
  EXPECT_EQ(stats.promotions.size(), 1u);
  for (const SequenceId id : ids) cache->finish(id);
  controller->collect();
  EXPECT_EQ(store.bytes(), 0u);
  controller.reset();
  EXPECT_EQ(source.buffer_bytes(), 0u);
  ASSERT_OK(cache->check());
}

}  // namespace
}  // namespace varve::cache
