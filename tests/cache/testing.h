#pragma once
// Small caches for tests.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "cache/cache.h"

namespace varve::cache::testing {

inline constexpr size_t kRecentBytes = 512, kStale1Bytes = 128, kStale2Bytes = 64, kStripBytes = 64;

/// One full-attention class with pages of 4 tokens, two stale tiers and a strip; room for `pages` recent slots.
inline Config small_config(size_t pages) {
  Config config;
  ClassConfig full;
  full.page_tokens = 4;
  full.slot_bytes = {kRecentBytes, 0, kStale1Bytes, kStale2Bytes};
  full.strip_bytes = kStripBytes;
  config.classes = {full};
  config.budget_bytes = pages * kRecentBytes;
  config.poison = true;
  return config;
}

/// The same with a second, sliding class of pages of 2 tokens and a window of 5.
inline Config two_class_config(size_t pages) {
  Config config = small_config(pages);
  ClassConfig sliding;
  sliding.page_tokens = 2;
  sliding.window = 5;
  sliding.slot_bytes = {192, 192, 0, 0};
  config.classes.push_back(sliding);
  return config;
}

inline std::unique_ptr<Cache> make(const Config& config) {
  auto cache = Cache::create(config);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

/// Reserves and settles; the slots keep whatever they hold.
inline Status grow(Cache& cache, SequenceId id, int tokens) {
  if (Status status = cache.reserve(id, tokens); !status.ok()) return status;
  return cache.settle(id, tokens);
}

#define ASSERT_OK(expr)                                              \
  do {                                                               \
    const ::varve::Status status_ = (expr);                          \
    ASSERT_TRUE(status_.ok()) << #expr << ": " << status_.message(); \
  } while (0)
#define EXPECT_OK(expr)                                              \
  do {                                                               \
    const ::varve::Status status_ = (expr);                          \
    EXPECT_TRUE(status_.ok()) << #expr << ": " << status_.message(); \
  } while (0)

}  // namespace varve::cache::testing
