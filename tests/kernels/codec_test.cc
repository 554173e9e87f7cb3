// Encoders and decoders of every table against the scalar references: equal bit for bit, NaN payloads apart.

#include "base/half.h"
#include "format/tq/codebook.h"
#include "support.h"

namespace varve::kernels::testing {
namespace {

class Codecs : public EveryTable {};

/// Rows that visit the corners of the encoders.
std::vector<std::vector<float>> corner_rows(int head_dim) {
  const size_t n = static_cast<size_t>(kTileTokens * head_dim);
  std::vector<std::vector<float>> sets = {rows_like_a_cache(kTileTokens, head_dim, 1), gaussian(n, 2),
                                          std::vector<float>(n, 0.0f), std::vector<float>(n, -2.5f)};
  std::vector<float> mixed = rows_like_a_cache(kTileTokens, head_dim, 3);
  const auto row = [&](int t) { return mixed.data() + t * head_dim; };
  const auto fill = [&](int t, float x) { std::fill_n(row(t), head_dim, x); };
  row(1)[3] = kNan;
  row(2)[head_dim - 1] = kInfinity;
  row(3)[0] = -kInfinity;
  fill(4, 0.0f);
  fill(5, -0.0f);
  fill(6, 1e-42f);
  fill(7, 1e-20f);
  fill(8, 3.0e38f);
  fill(9, 70000.0f);
  fill(10, 1e5f);
  row(10)[1] = -1e5f;
  fill(11, 0.0f);
  row(11)[head_dim / 2] = 1.0f;                                                          // one-hot
  for (int d = 0; d < head_dim; ++d) row(12)[d] = static_cast<float>(d - head_dim / 2);  // ties of the int8 rounding
  for (int d = 0; d < head_dim; ++d) row(13)[d] = d % 2 ? 1.0f : -1.0f;
  for (int d = 0; d < head_dim; ++d) row(14)[d] = 1000.0f + 1e-3f * static_cast<float>(d % 5);
  for (int d = 0; d < head_dim; ++d) row(15)[d] = std::ldexp(1.0f, d % 40 - 20);
  sets.push_back(mixed);
  return sets;
}

void expect_same_bytes(const Guarded<uint8_t>& expected, const Guarded<uint8_t>& got, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(int{expected[i]}, int{got[i]}) << what << " byte " << i;
  }
  EXPECT_TRUE(got.intact()) << what;
}

/// f16 tiles may differ in the payload of a NaN.
void expect_same_halves(const Guarded<uint8_t>& expected, const Guarded<uint8_t>& got, const std::string& what) {
  for (size_t i = 0; i + 1 < expected.size(); i += 2) {
    half_t a, b;
    std::memcpy(&a, expected.data() + i, 2);
    std::memcpy(&b, got.data() + i, 2);
    if (std::isnan(half_to_float(a)) && std::isnan(half_to_float(b))) continue;
    ASSERT_EQ(a, b) << what << " element " << i / 2;
  }
  EXPECT_TRUE(got.intact()) << what;
}

void expect_same_rows(const std::vector<float>& expected, const Guarded<float>& got, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(expected[i], got[i]) << what << " element " << i;
  }
  EXPECT_TRUE(got.intact()) << what;
}

TEST_P(Codecs, EncodeEqualsTheReference) {
  for (const int head_dim : format::kHeadDims) {
    for (const auto& rows : corner_rows(head_dim)) {
      for (const bool inner_product_norm : {true, false}) {
        const format::EncodeOptions options{.inner_product_norm = inner_product_norm};
        for (const KCodec codec : k_codecs()) {
          const format::KCodecInfo& info = format::k_codec(codec);
          const std::string what = std::string("K ") + info.name + " head_dim " + std::to_string(head_dim);
          Guarded<uint8_t> expected(info.tile_bytes(head_dim)), got(info.tile_bytes(head_dim));
          info.encode(rows.data(), head_dim, options, expected.data());
          kernels().k_encode[static_cast<size_t>(codec)](rows.data(), head_dim, options, got.data());
          codec == KCodec::kF16 ? expect_same_halves(expected, got, what) : expect_same_bytes(expected, got, what);
        }
        for (const VCodec codec : v_codecs()) {
          const format::VCodecInfo& info = format::v_codec(codec);
          const std::string what = std::string("V ") + info.name + " head_dim " + std::to_string(head_dim);
          Guarded<uint8_t> expected(info.tile_bytes(head_dim)), got(info.tile_bytes(head_dim));
          info.encode(rows.data(), head_dim, options, expected.data());
          kernels().v_encode[static_cast<size_t>(codec)](rows.data(), head_dim, options, got.data());
          codec == VCodec::kF16 ? expect_same_halves(expected, got, what) : expect_same_bytes(expected, got, what);
        }
      }
    }
  }
}

TEST_P(Codecs, DecodeEqualsTheReference) {
  for (const int head_dim : format::kHeadDims) {
    for (const auto& rows : corner_rows(head_dim)) {
      for (const KCodec codec : k_codecs()) {
        const auto tile = encode_k(codec, rows, head_dim);
        Guarded<float> got(rows.size(), kNan);
        kernels().k_decode[static_cast<size_t>(codec)](tile.data(), head_dim, got.data());
        expect_same_rows(decode_k(codec, tile, head_dim), got, std::string("K ") + format::k_codec(codec).name);
      }
      for (const VCodec codec : v_codecs()) {
        const auto tile = encode_v(codec, rows, head_dim);
        Guarded<float> got(rows.size(), kNan);
        kernels().v_decode[static_cast<size_t>(codec)](tile.data(), head_dim, got.data());
        expect_same_rows(decode_v(codec, tile, head_dim), got, std::string("V ") + format::v_codec(codec).name);
      }
    }
  }
}

// Bytes that no encoder writes, so that every code and every metadata bit pattern is decoded.
TEST_P(Codecs, DecodeOfArbitraryBytesEqualsTheReference) {
  std::mt19937 random(71);
  for (const int head_dim : format::kHeadDims) {
    for (const KCodec codec : k_codecs()) {
      Guarded<uint8_t> tile(format::k_codec(codec).tile_bytes(head_dim));
      for (uint8_t& byte : tile) byte = static_cast<uint8_t>(random());
      Guarded<float> got(static_cast<size_t>(kTileTokens * head_dim), kNan);
      kernels().k_decode[static_cast<size_t>(codec)](tile.data(), head_dim, got.data());
      expect_same_rows(decode_k(codec, tile, head_dim), got, std::string("K ") + format::k_codec(codec).name);
    }
    for (const VCodec codec : v_codecs()) {
      Guarded<uint8_t> tile(format::v_codec(codec).tile_bytes(head_dim));
      for (uint8_t& byte : tile) byte = static_cast<uint8_t>(random());
      Guarded<float> got(static_cast<size_t>(kTileTokens * head_dim), kNan);
      kernels().v_decode[static_cast<size_t>(codec)](tile.data(), head_dim, got.data());
      expect_same_rows(decode_v(codec, tile, head_dim), got, std::string("V ") + format::v_codec(codec).name);
    }
  }
}

VARVE_EVERY_TABLE(Codecs);

}  // namespace
}  // namespace varve::kernels::testing
