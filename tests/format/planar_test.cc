#include "format/planar.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace varve::format {
namespace {

TEST(Planar, IndexVisitsEveryCodeOnce) {
  for (const int head_dim : kHeadDims) {
    std::set<size_t> k, v;
    for (int t = 0; t < kTileTokens; ++t) {
      for (int d = 0; d < head_dim; ++d) {
        k.insert(planar::index(d, t, kTileTokens));
        v.insert(planar::index(t, d, head_dim));
      }
    }
    const size_t count = static_cast<size_t>(head_dim) * kTileTokens;
    EXPECT_EQ(k.size(), count) << head_dim;
    EXPECT_EQ(*k.rbegin(), count - 1) << head_dim;
    EXPECT_EQ(v.size(), count) << head_dim;
    EXPECT_EQ(*v.rbegin(), count - 1) << head_dim;
  }
}

TEST(Planar, UnitsHoldSixteenOutputsByFourSteps) {
  // The first unit of K: dims 0..3 of tokens 0..15; the second: the same dims of tokens 16..31.
  EXPECT_EQ(planar::index(0, 0, 64), 0u);
  EXPECT_EQ(planar::index(3, 0, 64), 3u);
  EXPECT_EQ(planar::index(0, 1, 64), 4u);
  EXPECT_EQ(planar::index(0, 16, 64), 64u);
  EXPECT_EQ(planar::index(4, 0, 64), 256u);
  // V at head_dim 80: five units per four tokens.
  EXPECT_EQ(planar::index(4, 0, 80), 320u);
}

/// Packs every code, reads each bit back from the place the layout gives it, and unpacks.
template <int bits>
void check_bijection(int head_dim) {
  std::mt19937 random(static_cast<uint32_t>(head_dim * 10 + bits));
  const size_t count = static_cast<size_t>(head_dim) * planar::kUnit;
  std::vector<uint8_t> codes(count);
  for (auto& c : codes) c = static_cast<uint8_t>(random() & ((1u << bits) - 1));
  constexpr uint8_t kGuard = 0xa5;
  const size_t size = planar::bytes(head_dim, bits);
  std::vector<uint8_t> packed(size + 64, kGuard), back(count, 0xff);
  planar::pack<bits>(codes.data(), head_dim, packed.data());
  for (size_t i = size; i < packed.size(); ++i) ASSERT_EQ(packed[i], kGuard) << "byte " << i << " of " << size;

  for (size_t at = 0; at < count; ++at) {
    const size_t u = at / planar::kUnit, lane = at % planar::kUnit;
    unsigned code = 0;
    int shift = 0;
    size_t plane = 0;
    for (const int w : planar::planes(bits).width) {
      if (w == 0) continue;
      const size_t per = 8 / static_cast<size_t>(w);
      const unsigned byte = packed[plane + u / per * planar::kUnit + lane];
      code |= (byte >> (static_cast<size_t>(w) * (u % per)) & ((1u << w) - 1)) << shift;
      plane += 8 * static_cast<size_t>(head_dim) * static_cast<size_t>(w);
      shift += w;
    }
    ASSERT_EQ(code, codes[at]) << bits << " bits, head_dim " << head_dim << ", unit " << u << ", lane " << lane;
  }
  planar::unpack<bits>(packed.data(), head_dim, back.data());
  EXPECT_EQ(back, codes) << bits << " bits, head_dim " << head_dim;
}

TEST(Planar, PackingIsABijectionAtTheDocumentedPlaces) {
  for (const int head_dim : kHeadDims) {
    check_bijection<8>(head_dim);
    check_bijection<6>(head_dim);
    check_bijection<5>(head_dim);
    check_bijection<4>(head_dim);
    check_bijection<3>(head_dim);
    check_bijection<2>(head_dim);
  }
}

TEST(Planar, PlacingRowsAgreesWithTheIndex) {
  for (const int head_dim : kHeadDims) {
    const size_t n = static_cast<size_t>(head_dim);
    std::vector<uint8_t> rows(4 * n), k(n * planar::kUnit), v(n * planar::kUnit);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint8_t>(i * 7 + 1);
    for (const int token : {0, 4, 60}) {
      for (int i = 0; i < 4; ++i)
        planar::place_k(rows.data() + static_cast<size_t>(i) * n, head_dim, token + i, k.data());
      planar::place_v(rows.data(), n, head_dim, token, v.data());
      for (int i = 0; i < 4; ++i) {
        for (int d = 0; d < head_dim; ++d) {
          const uint8_t code = rows[static_cast<size_t>(i) * n + static_cast<size_t>(d)];
          ASSERT_EQ(k[planar::index(d, token + i, kTileTokens)], code);
          ASSERT_EQ(v[planar::index(token + i, d, head_dim)], code);
        }
      }
    }
  }
}

}  // namespace
}  // namespace varve::format
