// Conversion slices filled by another thread while the engine's thread steps: reads sources, appends, forks, finishes.
// Run under ThreadSanitizer to see that no slot is written by one thread while the other may use it.

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/lifecycle/age_policy.h"
#include "fake_engine.h"
#include "testing.h"

namespace varve::cache {
namespace {

using testing::FakeEngine;
using testing::fingerprint_config;
using testing::make;

/// One thread that works off jobs in order; wait() returns when all are done.
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
  void add(std::vector<FakeEngine::Job> jobs) {
    {
      const std::lock_guard lock(mutex_);
      for (FakeEngine::Job& job : jobs) jobs_.push_back(std::move(job));
    }
    wake_.notify_all();
  }
  /// True when every source was what its holders wrote.
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
      const FakeEngine::Job job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      const bool intact = FakeEngine::convert(job);
      std::this_thread::yield();
      lock.lock();
      busy_ = false;
      intact_ &= intact;
      idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<FakeEngine::Job> jobs_;
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
  const WorkFn start_work = [&](std::span<const WorkUnit> units) { worker.add(engine.jobs(units, kUnits)); };

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

}  // namespace
}  // namespace varve::cache
