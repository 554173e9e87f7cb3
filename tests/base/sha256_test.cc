#include "base/sha256.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace varve {
namespace {

// FIPS 180-4 example values.
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Sha256, PublishedValues) {
  Sha256 hash;
  EXPECT_EQ(hash.hex(), kEmpty);
  hash.update("ab", 2);
  hash.update("c", 1);
  EXPECT_EQ(hash.hex(), kAbc);
}

TEST(Sha256, HexLeavesTheHashOpen) {
  Sha256 hash;
  hash.update("a", 1);
  (void)hash.hex();
  hash.update("bc", 2);
  EXPECT_EQ(hash.hex(), kAbc);
}

class Sha256OfFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path = ::testing::TempDir() + "varve-sha256-" + std::to_string(getpid());
    std::ofstream(path) << "xxabcxx";
  }
  void TearDown() override { std::remove(path.c_str()); }
  std::string path;
};

TEST_F(Sha256OfFile, HashesTheRange) {
  EXPECT_EQ(*sha256_of_file(path, 2, 5), kAbc);
  EXPECT_EQ(*sha256_of_file(path, 3, 3), kEmpty);
}

TEST_F(Sha256OfFile, EndBeyondTheFileIsCorruptWithTheNumbers) {
  const Result<std::string> hash = sha256_of_file(path, 0, 9);
  ASSERT_FALSE(hash.ok());
  EXPECT_EQ(hash.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(hash.status().message().find("ends at byte 7, expected 9"), std::string::npos);
}

TEST_F(Sha256OfFile, MissingFileIsNotFound) {
  EXPECT_EQ(sha256_of_file(path + ".no", 0, 1).status().code(), StatusCode::kNotFound);
}

TEST_F(Sha256OfFile, CallbackCanStop) {
  EXPECT_EQ(sha256_of_file(path, 0, 7, [](uint64_t) { return false; }).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace varve
