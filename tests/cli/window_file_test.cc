#include "cli/window_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

/// A stream of compress(1) without its header that uses no word of the dictionary: 9 bits for each byte, the lowest
/// first. Up to 200 bytes, since longer streams go on with wider codes.
std::string literal_stream(const std::string& text) {
  std::string stream((text.size() * 9 + 7) / 8, '\0');
  for (size_t i = 0; i < text.size(); ++i)
    for (size_t bit = 0; bit < 8; ++bit)
      if (static_cast<unsigned char>(text[i]) >> bit & 1)
        stream[(9 * i + bit) / 8] = static_cast<char>(stream[(9 * i + bit) / 8] | 1 << (9 * i + bit) % 8);
  return stream;
}

std::string number(size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string packed(const std::vector<std::string>& windows) {
  std::string file = "EC02Test";
  file.resize(80);
  file += number(0) + number(65536) + number(windows.size());
  std::string streams;
  const size_t data_at = file.size() + 4 * (windows.size() + 1) + 3;
  for (const std::string& window : windows) {
    file += number(data_at + streams.size());
    streams += literal_stream(window);
  }
  return file + number(data_at + streams.size()) + "\x1f\x9d\x90" + streams;
}

class WindowFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "varve-windows-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
    child = {root, root, root / "log", [] { return true; }};
  }
  void TearDown() override { fs::remove_all(root); }

  Status unpack(const std::string& bytes) {
    std::ofstream(root / "packed", std::ios::binary) << bytes;
    return unpack_windows(root / "packed", root / "plain", child);
  }

  fs::path root;
  ChildOptions child;
};

TEST_F(WindowFile, WindowsMakeUpTheText) {
  const Status status = unpack(packed({"In the beginning", " was", " the word.\n"}));
  ASSERT_TRUE(status.ok()) << status.message();
  std::ifstream plain(root / "plain", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(plain), {}), "In the beginning was the word.\n");
}

TEST_F(WindowFile, OtherLayoutsAreCorrupt) {
  const std::string good = packed({"abc", "def"});
  const auto with = [&](size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "EC02"},
      {"EC02", "EC02"},
      {with(0, "XX02"), "EC02"},
      {with(88, number(0)), "0 windows"},
      {with(88, number(0xffffffff)), "4294967295 windows"},
      {with(92, number(5)), "window 0 begins at byte 5"},
      {with(96, number(50)), "window 1 begins at byte 50"},
      {good.substr(0, good.size() - 1), "outside"},
  };
  for (const auto& [bytes, says] : cases) {
    const Status status = unpack(bytes);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << says;
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
  }
  EXPECT_EQ(unpack_windows(root / "absent", root / "plain", child).code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace varve::cli
