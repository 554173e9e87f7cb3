// docs/formats.md and the FORMAT.md files state sizes; they are computed here, so that they cannot drift from the
// layouts.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "format/lr/block.h"
#include "format/plane.h"

namespace varve::format {
namespace {

constexpr int kPageTokens = 256;

/// Bits per stored K or V element of one plane, everything but the slot's header counted.
double bits_per_value(const LayerFormat& format, int head_dim) {
  const PlaneLayout plane = plane_layout(format, head_dim, kPageTokens);
  return static_cast<double>(plane.bytes) * 8 / (2.0 * kPageTokens * head_dim);
}

std::string read(const char* path_in_repo) {
  const auto root = std::filesystem::path(__FILE__).parent_path() / "../..";
  std::ifstream in(root / path_in_repo);
  EXPECT_TRUE(in.good()) << path_in_repo;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void expect_holds(const char* path_in_repo, const std::string& table) {
  EXPECT_NE(read(path_in_repo).find(table), std::string::npos) << path_in_repo << " must hold:\n" << table;
}

TEST(Docs, TheTableOfFormatsIsComputed) {
  std::string table;
  for (const char* name : {"f16", "fp8", "int8", "k6v4", "k5v4", "k4v4", "k4v3", "k3v3", "k3v2", "k2v2"}) {
    const LayerFormat format = *parse_format(name, Centre::kRotary);
    table += std::string("| `").append(name).append("` |");
    for (const int head_dim : kHeadDims) {
      char cell[16];
      std::snprintf(cell, sizeof(cell), " %.2f |", bits_per_value(format, head_dim));
      table += cell;
    }
    table += '\n';
  }
  expect_holds("docs/formats.md", table);
}

/// Bits per value of a block, by head_dim, for two KV heads.
std::string low_rank_bits(const char* name, int page_tokens) {
  std::string row = std::string("| `").append(name).append("`, ").append(std::to_string(page_tokens)).append(" |");
  for (const int head_dim : kHeadDims) {
    const BlockShape shape{page_tokens, 2, head_dim, parse_format(name, Centre::kNone)->low_rank};
    EXPECT_TRUE(check_block(shape).ok()) << name << " dim " << head_dim;
    char cell[16];
    std::snprintf(cell, sizeof(cell), " %.2f |",
                  static_cast<double>(block_bytes(shape)) * 8 / (static_cast<double>(page_tokens) * shape.width()));
    row += cell;
  }
  return row + '\n';
}

TEST(Docs, BitsOfLowRankBlocksAreComputed) {
  std::string table;
  for (const char* name : {"lr32+64", "lr64+128", "lr128+256", "lr32+64/int4", "lr32+64/f16"}) {
    table += low_rank_bits(name, 1024);
  }
  for (const char* name : {"lr16+16", "lr32+40"}) table += low_rank_bits(name, 256);
  expect_holds("src/format/lr/FORMAT.md", table);
  expect_holds("docs/formats.md", low_rank_bits("lr32+64", 1024) + low_rank_bits("lr64+128", 1024));
}

std::string bytes_per_token(const char* label, const LayerFormat& format) {
  std::string row = std::string("| ").append(label).append(" |");
  for (const int head_dim : kHeadDims) {
    const size_t tile = k_codec(format.k).tile_bytes(head_dim) + v_codec(format.v).tile_bytes(head_dim);
    EXPECT_EQ(tile % kTileTokens, 0u);
    row += ' ' + std::to_string(tile / kTileTokens) + " |";
  }
  return row + '\n';
}

TEST(Docs, BytesPerTokenAreComputed) {
  for (const char* name : {"f16", "fp8", "int8"}) {
    const std::string path = std::string("src/format/").append(name).append("/FORMAT.md");
    expect_holds(path.c_str(), bytes_per_token("bytes per token, K + V", *parse_format(name, Centre::kNone)));
  }
  std::string table;
  for (const char* name : {"k6v4", "k5v4", "k4v4", "k4v3", "k3v3", "k3v2", "k2v2"}) {
    table += bytes_per_token(name, *parse_format(name, Centre::kNone));
  }
  expect_holds("src/format/tq/FORMAT.md", table);
}

}  // namespace
}  // namespace varve::format
