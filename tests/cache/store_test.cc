// Where refinements rest: limits, reuse of space, and everything that can go wrong with a file.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cache/store/extents.h"
#include "cache/store/file_store.h"
#include "cache/store/memory_store.h"
#include "cache/store/stored_refinements.h"
#include "testing.h"

namespace varve::cache {
namespace {

using Value = std::vector<uint8_t>;

Value value_of(size_t bytes, int seed) {
  Value v(bytes);
  for (size_t i = 0; i < bytes; ++i) v[i] = static_cast<uint8_t>(static_cast<size_t>(seed) * 31 + i * 7 + i / 251);
  return v;
}

class Stores : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/varve-store-test-XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = std::filesystem::canonical(path).string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<FileStore> file_store(size_t limit) {
    auto made = FileStore::create(directory_, limit);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }
  /// The open file of the only FileStore in this test, for damage.
  int descriptor() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.starts_with(directory_)) return std::stoi(entry.path().filename().string());
    }
    return -1;
  }

  std::string directory_;
};

void expect_behaves(PageStore& store) {
  const Value a = value_of(1000, 1), b = value_of(1000, 2), c = value_of(500, 3);
  EXPECT_OK(store.put(1, a));
  EXPECT_OK(store.put(2, b));
  EXPECT_EQ(store.bytes(), 2000u);
  Value out(1000);
  EXPECT_OK(store.get(2, out));
  EXPECT_EQ(out, b);
  EXPECT_OK(store.get(1, out));
  EXPECT_EQ(out, a);
  EXPECT_EQ(store.get(3, out).code(), StatusCode::kNotFound);
  Value small(999);
  EXPECT_EQ(store.get(1, small).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.put(9, {}).code(), StatusCode::kInvalidArgument);

  const Status full = store.put(3, a);  // the limit is 2,500
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(testing::contains(full.message(), "2500")) << full.message();
  EXPECT_EQ(store.stats().full, 1u);
  EXPECT_EQ(store.get(3, out).code(), StatusCode::kNotFound);
  EXPECT_OK(store.put(3, c));
  EXPECT_OK(store.get(1, out));
  EXPECT_EQ(out, a);

  store.erase(1);
  store.erase(1);
  EXPECT_EQ(store.bytes(), 1500u);
  EXPECT_EQ(store.get(1, out).code(), StatusCode::kNotFound);
  EXPECT_OK(store.put(4, a));  // into the room of 1
  EXPECT_LE(store.allocated_bytes(), 2500u);
  EXPECT_OK(store.put(2, a));  // replaces
  EXPECT_OK(store.get(2, out));
  EXPECT_EQ(out, a);
  EXPECT_EQ(store.bytes(), 2500u);
  EXPECT_EQ(store.put(2, value_of(2000, 5)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store.get(2, out).code(), StatusCode::kNotFound) << "a failed put leaves no older value";
  for (const uint64_t key : {3, 4}) store.erase(key);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.allocated_bytes(), 0u);
}

TEST_F(Stores, MemoryBehaves) {
  MemoryStore store(2500);
  EXPECT_STREQ(store.place(), "host");
  expect_behaves(store);
}

TEST_F(Stores, FileBehavesAndLeavesNothingBehind) {
  auto store = file_store(2500);
  EXPECT_STREQ(store->place(), "disk");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  expect_behaves(*store);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  EXPECT_EQ(std::filesystem::file_size("/proc/self/fd/" + std::to_string(descriptor())), 0u);
  store.reset();
  EXPECT_EQ(descriptor(), -1);
}

TEST_F(Stores, UnwritableDirectoriesAreErrorsWithTheirName) {
  std::ofstream(directory_ + "/file") << "x";
  for (const std::string& place : {directory_ + "/none", directory_ + "/file", std::string("/proc")}) {
    const auto made = FileStore::create(place, 1000);
    ASSERT_FALSE(made.ok()) << place;
    EXPECT_EQ(made.status().code(), StatusCode::kIoError);
    EXPECT_TRUE(testing::contains(made.status().message(), place)) << made.status().message();
  }
}

TEST_F(Stores, ChangedBytesAreCorrupt) {
  auto store = file_store(10000);
  ASSERT_OK(store->put(1, value_of(1000, 1)));
  ASSERT_OK(store->put(2, value_of(1000, 2)));
  const uint8_t flipped = static_cast<uint8_t>(value_of(1000, 1)[500] ^ 1);
  ASSERT_EQ(pwrite(descriptor(), &flipped, 1, 500), 1);
  Value out(1000);
  EXPECT_EQ(store->get(1, out).code(), StatusCode::kCorrupt);
  EXPECT_EQ(store->stats().corrupt, 1u);
  EXPECT_OK(store->get(2, out));
}

TEST_F(Stores, AShortFileIsAReadError) {
  auto store = file_store(10000);
  ASSERT_OK(store->put(1, value_of(1000, 1)));
  ASSERT_EQ(ftruncate(descriptor(), 400), 0);
  Value out(1000);
  const Status status = store->get(1, out);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_TRUE(testing::contains(status.message(), "400 of 1000")) << status.message();
  EXPECT_EQ(store->stats().read_errors, 1u);
}

TEST_F(Stores, AShortWriteIsAnErrorAndItsSpaceIsUsable) {
  auto store = file_store(100000);
  ASSERT_OK(store->put(1, value_of(1000, 1)));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1500;  // the disk is full in the middle of the next value
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = store->put(2, value_of(1000, 2));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_TRUE(testing::contains(status.message(), "500 of 1000")) << status.message();
  EXPECT_EQ(store->stats().write_errors, 1u);
  EXPECT_EQ(store->allocated_bytes(), 1000u);
  Value out(1000);
  EXPECT_EQ(store->get(2, out).code(), StatusCode::kNotFound);
  EXPECT_OK(store->put(2, value_of(1000, 2)));
  EXPECT_OK(store->get(1, out));
  EXPECT_EQ(out, value_of(1000, 1));
}

TEST_F(Stores, ExtentsNeverOverlapAndComeBack) {
  std::mt19937 random(7);
  Extents extents(4096);
  std::vector<std::pair<size_t, size_t>> taken;
  std::array<bool, 4096> used{};
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const size_t bytes = 1 + random() % 300;
      const auto offset = extents.take(bytes);
      if (!offset) continue;
      ASSERT_LE(*offset + bytes, extents.end());
      ASSERT_LE(extents.end(), 4096u);
      for (size_t b = *offset; b < *offset + bytes; ++b) {
        ASSERT_FALSE(used[b]);
        used[b] = true;
      }
      taken.emplace_back(*offset, bytes);
    } else if (!taken.empty()) {
      const size_t k = random() % taken.size();
      const auto [offset, bytes] = taken[k];
      taken.erase(taken.begin() + static_cast<ptrdiff_t>(k));
      extents.give(offset, bytes);
      for (size_t b = offset; b < offset + bytes; ++b) used[b] = false;
    }
    ASSERT_TRUE(extents.end() == 0 || used[extents.end() - 1]) << "the end is given back";
  }
  for (const auto& [offset, bytes] : taken) extents.give(offset, bytes);
  EXPECT_EQ(extents.end(), 0u);
}

TEST_F(Stores, RefinementsOfBothPlacesReadBackAndForget) {
  MemoryStore memory(10000);
  auto file = file_store(10000);
  for (PageStore* store : {static_cast<PageStore*>(&memory), static_cast<PageStore*>(file.get())}) {
    StoredRefinements source(store);
    const Value slot = value_of(600, 9);
    ASSERT_TRUE(source.keep(0, 7, Tier::kAnchor, slot.data(), slot.size()));
    EXPECT_EQ(source.ask(1, 0, 8, 0), FidelitySource::State::kNone);
    EXPECT_EQ(source.bytes(0, 7).slot, nullptr);
    ASSERT_EQ(source.ask(1, 0, 7, 0), FidelitySource::State::kReady);
    EXPECT_EQ(source.buffer_bytes(), 600u);
    const FidelitySource::Bytes bytes = source.bytes(0, 7);
    EXPECT_EQ(Value(bytes.slot, bytes.slot + 600), slot);
    EXPECT_EQ(bytes.tier, Tier::kAnchor);
    EXPECT_STREQ(bytes.how, "restore");
    source.done(0, 7);
    source.done(0, 7);
    EXPECT_EQ(source.buffer_bytes(), 0u);
    EXPECT_EQ(source.ask(1, 0, 7, 0), FidelitySource::State::kReady) << "done keeps what was kept";
    source.done(0, 7);
    EXPECT_EQ(store->bytes(), 600u);
    source.forget(7);
    source.forget(7);
    EXPECT_EQ(store->bytes(), 0u);
    EXPECT_EQ(source.ask(1, 0, 7, 0), FidelitySource::State::kNone);
    EXPECT_EQ(source.lost(), 0u);
  }
}

TEST_F(Stores, ADamagedRefinementIsAMissAndGivesItsSpaceBack) {
  auto store = file_store(10000);
  StoredRefinements source(store.get());
  const Value slot = value_of(600, 9);
  ASSERT_TRUE(source.keep(0, 7, Tier::kRecent, slot.data(), slot.size()));
  const uint8_t flipped = static_cast<uint8_t>(slot[0] ^ 0x80);
  ASSERT_EQ(pwrite(descriptor(), &flipped, 1, 0), 1);
  EXPECT_EQ(source.ask(1, 0, 7, 0), FidelitySource::State::kNone);
  EXPECT_EQ(source.lost(), 1u);
  EXPECT_EQ(store->stats().corrupt, 1u);
  EXPECT_EQ(store->bytes(), 0u);
  EXPECT_EQ(source.buffer_bytes(), 0u);
}

TEST_F(Stores, AFullStoreKeepsNothingMore) {
  MemoryStore store(1000);
  StoredRefinements source(&store);
  const Value slot = value_of(600, 9);
  EXPECT_TRUE(source.keep(0, 1, Tier::kRecent, slot.data(), slot.size()));
  EXPECT_FALSE(source.keep(0, 2, Tier::kRecent, slot.data(), slot.size()));
  EXPECT_EQ(source.pages(), 1u);
  EXPECT_EQ(source.ask(1, 0, 2, 0), FidelitySource::State::kNone);
}

}  // namespace
}  // namespace varve::cache
