#pragma once
// Small caches for tests.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "cache/cache.h"

namespace varve::cache::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSanitizerSlowdown = 8;  ///< long random tests are this much shorter under sanitizers
#else
inline constexpr int kSanitizerSlowdown = 1;
#endif

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

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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
