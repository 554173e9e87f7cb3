// The operations of Cache one by one, and the failures that serving systems are known for.

#include "cache/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "testing.h"

namespace varve::cache {
namespace {

using testing::grow;
using testing::kRecentBytes;
using testing::kStale1Bytes;
using testing::kStripBytes;
using testing::make;
using testing::small_config;
using testing::two_class_config;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CacheCreate, RefusesContradictions) {
  Config config = small_config(8);
  config.classes[0].page_tokens = 0;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes[0].slot_bytes[0] = 0;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes[0].tile_tokens = 3;
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.classes.clear();
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kInvalidArgument);

  config = small_config(8);
  config.budget_bytes = kRecentBytes + kStripBytes + kStale1Bytes - 1;
  const Status status = Cache::create(config).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status.message(), "704")) << status.message();
  EXPECT_TRUE(contains(status.message(), "703")) << status.message();

  config.budget_bytes += 1;
  EXPECT_TRUE(Cache::create(config).ok());

  config.classes[0].slot_bytes[0] = std::numeric_limits<size_t>::max();
  EXPECT_EQ(Cache::create(config).status().code(), StatusCode::kResourceExhausted);
}

TEST(CacheAppend, PagesFillSealAndReport) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(cache->reserve(id, 6));
  auto blocks = cache->blocks(id, 0);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].tokens, 0);
  EXPECT_FALSE(blocks[0].sealed);
  ASSERT_OK(cache->settle(id, 6));
  blocks = cache->blocks(id, 0);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].tokens, 4);
  EXPECT_TRUE(blocks[0].sealed);
  EXPECT_EQ(blocks[1].start, 4);
  EXPECT_EQ(blocks[1].tokens, 2);
  EXPECT_FALSE(blocks[1].sealed);
  EXPECT_EQ(cache->length(id), 6);
  EXPECT_EQ(cache->allocated_bytes(), 2 * kRecentBytes + kStripBytes);
  ASSERT_OK(cache->check());
  cache->finish(id);
  EXPECT_EQ(cache->allocated_bytes(), 0u);
  ASSERT_OK(cache->check());
}

TEST(CacheAppend, ReserveIsNotCumulativeAndSettleIsBounded) {
  auto cache = make(small_config(8));
  const SequenceId id = *cache->start();
  ASSERT_OK(cache->reserve(id, 4));
  ASSERT_OK(cache->reserve(id, 3));
  EXPECT_EQ(cache->blocks(id, 0).size(), 1u);
  EXPECT_EQ(cache->settle(id, 5).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->settle(id, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->length(id), 0);
  ASSERT_OK(cache->settle(id, 4));
  EXPECT_EQ(cache->settle(id, 1).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace varve::cache
