#include "cli/fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/sha256.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string sha256(const std::string& bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

/// A model of two parts, in packages made here: a fetch takes them from a directory instead of the network.
class FetchModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "varve-fetch-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
    fs::create_directories(root / "packages");
    for (size_t i = 0; i < 2; ++i) {
      bytes[i] = std::string(70000 + 1000 * i, static_cast<char>('a' + i)) + "GGUF";
      const std::string package = "varve_test_part" + std::to_string(i + 1);
      model.parts.push_back({package, "1.0", package + "/data.bin", bytes[i].size(), sha256(bytes[i])});
      make_wheel(i, bytes[i]);
    }
    model.key = "test";
    model.file = "test.gguf";
    model.bytes = bytes[0].size() + bytes[1].size();
    model.sha256 = sha256(bytes[0] + bytes[1]);
    options = {root / "models", root / "packages"};
  }
  void TearDown() override { fs::remove_all(root); }

  fs::path wheel(size_t i) const { return root / "packages" / (model.parts[i].package + "-1.0-py3-none-any.whl"); }

  void make_wheel(size_t i, const std::string& content) {
    write(root / "content", content);
    const std::string command = "python3 " VARVE_CASES "/make_wheel.py " + wheel(i).string() + " " +
                                model.parts[i].member + " " + (root / "content").string();
    ASSERT_EQ(std::system(command.c_str()), 0);
  }

  void expect_fetched() {
    const Result<std::string> path = fetch_model(model, options);
    ASSERT_TRUE(path.ok()) << path.status().message();
    EXPECT_EQ(*path, (root / "models" / "test.gguf").string());
    EXPECT_EQ(read(*path), bytes[0] + bytes[1]);
    expect_only("test.gguf");
  }

  void expect_only(const std::string& name) {
    for (const fs::directory_entry& entry : fs::directory_iterator(root / "models"))
      EXPECT_EQ(entry.path().filename(), name);
  }

  fs::path root;
  std::string bytes[2];
  ManifestModel model;
  FetchOptions options;
};

TEST_F(FetchModel, PartsMakeUpTheFileAndASecondFetchNeedsNoPackages) {
  expect_fetched();
  fs::remove_all(root / "packages");
  expect_fetched();
}

TEST_F(FetchModel, VerifiedPartsAreNotFetchedAgain) {
  make_wheel(1, std::string(bytes[1].size(), 'x'));
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(failed.status().message().find(model.parts[1].sha256), std::string::npos) << failed.status().message();
  expect_only("test.gguf.partial");
  fs::remove(wheel(0));
  make_wheel(1, bytes[1]);
  expect_fetched();
}

TEST_F(FetchModel, CutOffPartialIsContinuedAfterItsLastWholePart) {
  fs::create_directories(root / "models");
  write(root / "models" / "test.gguf.partial", bytes[0] + bytes[1].substr(0, 100));
  fs::remove(wheel(0));
  expect_fetched();
}

TEST_F(FetchModel, DamagedPartialKeepsNothingBehindTheDamage) {
  fs::create_directories(root / "models");
  std::string damaged = bytes[0] + bytes[1];
  damaged[5] ^= 1;
  write(root / "models" / "test.gguf.partial", damaged + "and more");
  expect_fetched();
}

TEST_F(FetchModel, FlippedBitInTheFinalFileIsRepaired) {
  expect_fetched();
  std::string damaged = bytes[0] + bytes[1];
  damaged[bytes[0].size() + 7] ^= 1;
  write(root / "models" / "test.gguf", damaged);
  fs::remove(wheel(0));  // only the damaged part is needed
  expect_fetched();
}

TEST_F(FetchModel, PartOfAnotherSizeIsNamedWithBothSizes) {
  make_wheel(0, "short");
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(failed.status().message().find("has 5 bytes, expected 70004"), std::string::npos)
      << failed.status().message();
}

TEST_F(FetchModel, PackageWithoutTheMemberIsCorrupt) {
  const std::string member = std::exchange(model.parts[0].member, "varve_test_part1/other.bin");
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kCorrupt);
}

TEST_F(FetchModel, BrokenArchiveIsAnErrorThatNamesThePackage) {
  write(wheel(0), "not a zip archive");
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("varve_test_part1==1.0"), std::string::npos) << failed.status().message();
}

TEST_F(FetchModel, MissingPackageSaysWhatPipSaid) {
  fs::remove(wheel(0));
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kIoError);
  EXPECT_NE(failed.status().message().find("No matching distribution"), std::string::npos) << failed.status().message();
}

TEST_F(FetchModel, ManifestHashThatPartsDoNotMakeUpIsNeverPublished) {
  model.sha256 = sha256("something else");
  const Result<std::string> failed = fetch_model(model, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_FALSE(fs::exists(root / "models" / "test.gguf"));
}

TEST(Manifest, KeysAndFilesAreUniqueAndSizesAddUp) {
  std::vector<std::string> names;
  for (const ManifestModel& model : manifest().models) {
    names.insert(names.end(), {model.key, model.file});
    uint64_t total = 0;
    for (const ManifestPart& part : model.parts) {
      total += part.bytes;
      EXPECT_EQ(part.sha256.size(), 64u) << part.package;
    }
    EXPECT_EQ(total, model.bytes) << model.key;
    EXPECT_EQ(model.sha256.size(), 64u) << model.key;
  }
  for (const ManifestText& text : manifest().texts) {
    names.insert(names.end(), {text.key, text.file});
    EXPECT_EQ(text.sha256.size(), 64u) << text.key;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace varve::cli
