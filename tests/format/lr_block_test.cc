// The bytes of a low-rank block: shapes, sizes, and what a reader makes of them.

#include <gtest/gtest.h>

#include <cmath>

#include "format/lr/block.h"
#include "lr_support.h"

namespace varve::format {
namespace {

using namespace test;

constexpr RowCodec kRowCodecs[] = {RowCodec::kInt8, RowCodec::kInt4, RowCodec::kF16};

TEST(LrBlock, BadShapesSayTheNumbers) {
  const BlockShape good{256, 2, 64, {.rank = 32, .rows = 64}};
  EXPECT_TRUE(check_block(good).ok());
  const auto message = [&](auto change) {
    BlockShape shape = good;
    change(shape);
    const Status status = check_block(shape);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  EXPECT_EQ(message([](auto& s) { s.format.rank = 0; }), "rank 0 is not within 1..255 for 256 tokens of 256 values");
  EXPECT_EQ(message([](auto& s) { s.format.rank = -1; }), "rank -1 is not within 1..255 for 256 tokens of 256 values");
  EXPECT_EQ(message([](auto& s) { s.format.rank = 256; }),
            "rank 256 is not within 1..255 for 256 tokens of 256 values");
  EXPECT_EQ(message([](auto& s) { s.tokens = 1024, s.format.rank = 257; }),
            "rank 257 is not within 1..256 for 1024 tokens of 256 values");
  EXPECT_EQ(message([](auto& s) { s.format.rows = 256; }), "exact rows 256 is not within 0..255 for 256 tokens");
  EXPECT_EQ(message([](auto& s) { s.format.rows = -1; }), "exact rows -1 is not within 0..255 for 256 tokens");
  for (const int tokens : {0, -64, 32, 96, 1088}) {
    EXPECT_EQ(message([&](auto& s) { s.tokens = tokens; }),
              "low-rank block of tokens " + std::to_string(tokens) + " is not within 64..1024 in steps of 64");
  }
  EXPECT_EQ(message([](auto& s) { s.kv_heads = 0; }), "0 KV heads in a low-rank block");
  EXPECT_EQ(message([](auto& s) { s.head_dim = 72; }), "head_dim 72 (supported: 64, 80, 96, 128, 192, 256)");
  for (const int rank : {1, 255}) {
    BlockShape edge = good;
    edge.format.rank = rank;
    edge.format.rows = 255;
    EXPECT_TRUE(check_block(edge).ok()) << rank;
  }
}

/// The formula of FORMAT.md.
size_t bytes_of(const BlockShape& s, size_t rank, size_t rows) {
  const size_t tokens = static_cast<size_t>(s.tokens), heads = static_cast<size_t>(s.kv_heads);
  const size_t dim = static_cast<size_t>(s.head_dim), width = 2 * heads * dim, groups = (dim + 63) / 64;
  const size_t row = s.format.row_codec == RowCodec::kF16    ? 2 * dim
                     : s.format.row_codec == RowCodec::kInt8 ? dim + 4 * groups
                                                             : dim / 2 + 4 * groups;
  const size_t index = (2 * rows + 2 * (tokens / 64 + 1) + 63) / 64 * 64;
  return 64 + index + tokens * rank + 2 * width * (1 + rank) + 2 * heads * rows * row;
}

TEST(LrBlock, BytesAreWhatTheFormulaSays) {
  for (const int head_dim : kHeadDims) {
    for (const RowCodec codec : kRowCodecs) {
      for (const int rows : {0, 1, 40}) {
        const BlockShape shape{128, 2, head_dim, {.rank = 7, .rows = rows, .row_codec = codec}};
        const size_t bytes = bytes_of(shape, 7, static_cast<size_t>(rows));
        EXPECT_EQ(block_bytes(shape), (bytes + 63) / 64 * 64) << head_dim << " rows " << rows;
        EXPECT_LT(block_payload_bytes(shape), block_bytes(shape));
      }
    }
  }
  EXPECT_EQ(block_bytes({1024, 3, 64, {.rank = 32, .rows = 64}}), 64u + 192 + 32768 + 768 + 24576 + 26112);
  EXPECT_EQ(block_payload_bytes({1024, 3, 64, {.rank = 32, .rows = 64}}), 32768u + 768 + 24576 + 24576);
}

TEST(LrBlock, BytesThatALowerRankLeavesAreRows) {
  for (const RowCodec codec : kRowCodecs) {
    for (const int rows : {0, 16}) {
      const BlockShape shape{256, 2, 80, {.rank = 24, .rows = rows, .row_codec = codec}};
      EXPECT_GE(rows_at_rank(shape, 24), rows);
      for (int rank = 0; rank <= 24; ++rank) {
        const int fits = rows_at_rank(shape, rank);
        EXPECT_LE(bytes_of(shape, static_cast<size_t>(rank), static_cast<size_t>(fits)), block_bytes(shape)) << rank;
        if (fits < shape.tokens - 1) {
          EXPECT_GT(bytes_of(shape, static_cast<size_t>(rank), static_cast<size_t>(fits) + 1), block_bytes(shape));
        }
        if (rank > 0) {
          EXPECT_LE(fits, rows_at_rank(shape, rank - 1));
        }
      }
    }
  }
  // Never more than there are rows beside the anchor.
  EXPECT_EQ(rows_at_rank({64, 1, 64, {.rank = 63, .rows = 63}}, 1), 63);
}

TEST(LrBlock, SectionsFollowOneAnotherInsideGuardZones) {
  for (const int head_dim : kHeadDims) {
    for (const RowCodec codec : kRowCodecs) {
      const BlockShape shape{128, 2, head_dim, {.rank = 9, .rows = 11, .row_codec = codec}};
      const LrRows rows = lr_page(shape, 3, 20);
      const size_t bytes = block_bytes(shape);
      std::vector<uint8_t> guarded(bytes + 2 * kCacheLine, 0x5a);
      const LowRankOptions options = plain_options();
      std::vector<float> scratch(encode_scratch_floats(shape, options) + 16, 3.0f);
      encode_block(shape, options, {}, 0, rows.k.data(), rows.v.data(), plain_gemm, scratch.data(),
                   guarded.data() + kCacheLine);
      for (size_t i = 0; i < kCacheLine; ++i) {
        ASSERT_EQ(guarded[i], 0x5a) << i;
        ASSERT_EQ(guarded[kCacheLine + bytes + i], 0x5a) << i;
      }
      for (size_t i = scratch.size() - 16; i < scratch.size(); ++i) ASSERT_EQ(scratch[i], 3.0f);
      const uint8_t* block = guarded.data() + kCacheLine;
      const BlockView view = view_block(shape, block);
      EXPECT_EQ(view.rank, 9);
      EXPECT_EQ(view.rows, 11);
      const auto at = [&](const void* p) { return static_cast<size_t>(static_cast<const uint8_t*>(p) - block); };
      EXPECT_EQ(at(view.row_tokens), 64u);
      EXPECT_EQ(at(view.u), 128u);
      EXPECT_EQ(at(view.anchor), 128u + 128 * 9);
      EXPECT_EQ(at(view.basis), at(view.anchor) + 2 * static_cast<size_t>(shape.width()));
      EXPECT_EQ(at(view.exact), at(view.basis) + 2 * 9 * static_cast<size_t>(shape.width()));
      EXPECT_EQ(view.tile_rows[0], 0);
      EXPECT_EQ(view.tile_rows[2], 11);
      // Bytes are all there is: a copy elsewhere decodes the same.
      LrBlock here{shape, {}, {block, block + bytes}};
      const LrRows a = here.decode();
      const LrBlock again = lr_encode(shape, rows, options);
      EXPECT_EQ(again.bytes, here.bytes);
      EXPECT_EQ(again.decode().k, a.k);
      EXPECT_EQ(again.decode().v, a.v);
    }
  }
}

/// A block of hand-made bytes: rank 1, one exact row.
TEST(LrBlock, DecodesByItsDefinition) {
  const BlockShape shape{64, 1, 64, {.rank = 1, .rows = 1, .row_codec = RowCodec::kF16}};
  std::vector<uint8_t> bytes(block_bytes(shape));
  const BlockHeader header{1, 1, 1.0f, {}};
  std::memcpy(bytes.data(), &header, sizeof(header));
  const BlockView view = view_block(shape, bytes.data());
  const auto put = [&](auto* where, auto value) {
    *const_cast<std::remove_const_t<std::remove_pointer_t<decltype(where)>>*>(where) = value;
  };
  put(view.row_tokens, uint16_t{5});
  put(view.tile_rows + 1, uint16_t{1});
  for (int t = 0; t < 64; ++t) put(view.u + t, static_cast<int8_t>(t == 0 ? 0 : t - 100));
  for (int d = 0; d < 64; ++d) {
    put(view.anchor + d, float_to_half(static_cast<float>(d)));
    put(view.anchor + 64 + d, float_to_half(-static_cast<float>(d)));
    put(view.basis + d, float_to_half(0.5f));
    put(view.basis + 64 + d, float_to_half(2.0f));
    const half_t k = float_to_half(1000.0f), v = float_to_half(-1000.0f);
    std::memcpy(bytes.data() + (view.exact - bytes.data()) + 2 * d, &k, 2);
    std::memcpy(bytes.data() + (view.exact - bytes.data()) + 128 + 2 * d, &v, 2);
  }
  std::vector<float> k(64 * 64), v(64 * 64);
  decode_block_tile(shape, bytes.data(), 0, 0, k.data(), v.data());
  for (int t = 0; t < 64; ++t) {
    const float u = static_cast<float>(t == 0 ? 0 : t - 100);
    for (int d = 0; d < 64; ++d) {
      const float dim = static_cast<float>(d);
      // Row 5 is replaced: its u adds nothing.
      EXPECT_EQ(k[static_cast<size_t>(t * 64 + d)], t == 5 ? dim + 1000 : dim + 0.5f * u) << t;
      EXPECT_EQ(v[static_cast<size_t>(t * 64 + d)], t == 5 ? -dim - 1000 : -dim + 2.0f * u) << t;
    }
  }
  std::vector<float> alone(64 * 64);
  decode_block_tile(shape, bytes.data(), 0, 0, nullptr, alone.data());
  EXPECT_EQ(alone, v);
  decode_block_tile(shape, bytes.data(), 0, 0, alone.data(), nullptr);
  EXPECT_EQ(alone, k);
}

TEST(LrBlock, AnExactRowMasksItsLowRankTwin) {
  const BlockShape shape{192, 2, 64, {.rank = 8, .rows = 20}};
  LrBlock block = lr_encode(shape, lr_page(shape, 7, 20), plain_options());
  const LrRows before = block.decode();
  const BlockView view = block.view();
  ASSERT_EQ(view.rows, 20);
  int8_t* u = const_cast<int8_t*>(view.u);
  for (int r = 0; r < view.rows; ++r) {
    const int t = view.row_tokens[r];
    for (int i = 0; i < view.rank; ++i) {
      int8_t& code = u[(t / 64 * view.rank + i) * 64 + t % 64];
      EXPECT_EQ(code, 0) << "a reader that forgets the mask adds nothing";
      code = 127;
    }
  }
  const LrRows after = block.decode();
  EXPECT_EQ(after.k, before.k);
  EXPECT_EQ(after.v, before.v);
  // And the test can fail: the u of any other row does change it.
  for (int t = 1; t < 64; ++t) {
    if (block.is_exact(t)) continue;
    u[t] = static_cast<int8_t>(u[t] == 127 ? 0 : 127);
    break;
  }
  EXPECT_NE(block.decode().k, before.k);
}

}  // namespace
}  // namespace varve::format
