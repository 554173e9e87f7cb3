// Every codec at every head_dim: sizes, round trips, hostile rows, and the byte layout itself.

#include "format/codec.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <limits>
#include <random>

#include "base/half.h"
#include "base/memory.h"
#include "support.h"

namespace varve::format {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Calls f(info) for every K and V codec.
template <typename F>
void for_each_codec(F f) {
  for (const KCodec k : kAllK) f(k_codec(k), true);
  for (const VCodec v : kAllV) f(v_codec(v), false);
}

std::string describe(const char* name, bool k, int head_dim) {
  return std::string(k ? "K " : "V ") + name + ", head_dim " + std::to_string(head_dim);
}

/// Metadata bytes of one tile: what is not code.
size_t metadata_bytes(int bits, bool k) {
  if (bits == 16) return 0;
  return bits == 8 || k ? 128 : 256;
}

TEST(Codec, TileBytesAreCodesPlusMetadata) {
  for (const int head_dim : kHeadDims) {
    for_each_codec([&](const auto& codec, bool k) {
      const size_t codes = static_cast<size_t>(8 * head_dim * codec.bits);
      EXPECT_EQ(codec.tile_bytes(head_dim), codes + metadata_bytes(codec.bits, k)) << describe(codec.name, k, head_dim);
      EXPECT_EQ(codec.tile_bytes(head_dim) % kCacheLine, 0u);
    });
  }
}

/// Bound on the mean relative squared error of Gaussian rows.
double error_bound(int bits, bool fp8) {
  switch (bits) {
    case 16:
      return 1e-7;
    case 8:
      return fp8 ? 8e-4 : 1.2e-4;
    case 6:
      return 7.5e-4;
    case 5:
      return .0028;
    case 4:
      return .0105;
    case 3:
      return .037;
    default:
      return .135;
  }
}

TEST(Codec, RoundTripsGaussianRowsOfAnyScale) {
  for (const int head_dim : kHeadDims) {
    for (const float sigma : {1e-2f, 1.0f, 300.0f}) {
      const auto rows = gaussian(tile_floats(head_dim), static_cast<uint32_t>(head_dim), sigma);
      for_each_codec([&](const auto& codec, bool k) {
        for (const bool inner : {false, true}) {
          const auto back = round_trip(codec, head_dim, rows, {.inner_product_norm = inner});
          const double bound = error_bound(codec.bits, std::string_view(codec.name) == "fp8");
          EXPECT_LT(relative_mse(rows.data(), back.data(), rows.size()), bound) << describe(codec.name, k, head_dim);
        }
      });
    }
  }
}

TEST(Codec, WritesItsTileAndNothingElse) {
  for (const int head_dim : kHeadDims) {
    const auto rows = gaussian(tile_floats(head_dim), 5);
    for_each_codec([&](const auto& codec, bool k) {
      const size_t size = codec.tile_bytes(head_dim);
      std::vector<uint8_t> a(size + 64, 0x00), b(size + 64, 0xff);
      codec.encode(rows.data(), head_dim, {}, a.data());
      codec.encode(rows.data(), head_dim, {}, b.data());
      EXPECT_EQ(std::memcmp(a.data(), b.data(), size), 0) << describe(codec.name, k, head_dim) << ": bytes unwritten";
      for (size_t i = size; i < a.size(); ++i) {
        ASSERT_EQ(a[i], 0x00) << describe(codec.name, k, head_dim) << ": wrote byte " << i << " of " << size;
        ASSERT_EQ(b[i], 0xff) << describe(codec.name, k, head_dim) << ": wrote byte " << i << " of " << size;
      }
    });
  }
}

TEST(Codec, Int8ErrorIsHalfAStep) {
  for (const int head_dim : kHeadDims) {
    const auto rows = gaussian(tile_floats(head_dim), 11, 4.0f);
    const auto check = [&](const std::vector<float>& back) {
      const size_t n = static_cast<size_t>(head_dim);
      for (size_t t = 0; t < kTileTokens; ++t) {
        float largest = 0;
        for (size_t d = 0; d < n; ++d) largest = std::max(largest, std::fabs(rows[t * n + d]));
        const float step = largest / 127 * (1 + 0x1p-10f);  // the scale is rounded up to f16
        for (size_t d = 0; d < n; ++d) {
          ASSERT_LE(std::fabs(rows[t * n + d] - back[t * n + d]), 0.5f * step * (1 + 1e-4f)) << t << "," << d;
        }
      }
    };
    check(round_trip(k_codec(KCodec::kInt8), head_dim, rows));
    check(round_trip(v_codec(VCodec::kInt8), head_dim, rows));
  }
}

TEST(Codec, Fp8ErrorIsHalfAnUlp) {
  for (const int head_dim : kHeadDims) {
    const auto rows = gaussian(tile_floats(head_dim), 12, 4.0f);
    const auto back = round_trip(k_codec(KCodec::kFp8), head_dim, rows);
    const size_t n = static_cast<size_t>(head_dim);
    for (size_t t = 0; t < kTileTokens; ++t) {
      float largest = 0;
      for (size_t d = 0; d < n; ++d) largest = std::max(largest, std::fabs(rows[t * n + d]));
      for (size_t d = 0; d < n; ++d) {
        const float x = rows[t * n + d];
        const float bound = std::max(std::fabs(x) / 16, largest / 448 * 0x1p-10f * 1.01f);
        ASSERT_LE(std::fabs(x - back[t * n + d]), bound * 1.001f) << t << "," << d;
      }
    }
  }
}

TEST(Codec, ZeroRowsDecodeToZeros) {
  for (const int head_dim : kHeadDims) {
    const std::vector<float> rows(tile_floats(head_dim), 0.0f);
    for_each_codec([&](const auto& codec, bool k) {
      EXPECT_EQ(round_trip(codec, head_dim, rows), rows) << describe(codec.name, k, head_dim);
    });
  }
}

TEST(Codec, LostRowsDecodeToNanAndLeaveTheOthersAlone) {
  for (const int head_dim : kHeadDims) {
    const size_t n = static_cast<size_t>(head_dim);
    const auto clean = gaussian(tile_floats(head_dim), 21);
    // NaN, the infinities, and finite values past anything that f16 can scale.
    for (const float poison : {kNan, kInf, -kInf, 1e9f, -1e30f, std::numeric_limits<float>::max()}) {
      auto rows = clean;
      const std::vector<size_t> lost = {0, 17, 63};
      for (const size_t t : lost) rows[t * n + (t * 7) % n] = poison;
      for_each_codec([&](const auto& codec, bool k) {
        if (codec.bits == 16) return;  // keeps elements as they are
        const auto expected = round_trip(codec, head_dim, clean);
        const auto back = round_trip(codec, head_dim, rows);
        for (size_t t = 0; t < kTileTokens; ++t) {
          const bool is_lost = std::find(lost.begin(), lost.end(), t) != lost.end();
          for (size_t d = 0; d < n; ++d) {
            if (is_lost) {
              ASSERT_TRUE(std::isnan(back[t * n + d])) << describe(codec.name, k, head_dim) << " poison " << poison
                                                       << " at " << t << "," << d << ": " << back[t * n + d];
            } else {
              ASSERT_EQ(back[t * n + d], expected[t * n + d]) << describe(codec.name, k, head_dim) << " at " << t;
            }
          }
        }
      });
    }
  }
}

TEST(Codec, F16KeepsElements) {
  const int head_dim = 64;
  auto rows = gaussian(tile_floats(head_dim), 22);
  rows[3] = kNan;
  rows[4] = -kInf;
  rows[5] = 1e30f;
  const auto back = round_trip(k_codec(KCodec::kF16), head_dim, rows);
  EXPECT_TRUE(std::isnan(back[3]));
  EXPECT_EQ(back[4], -kInf);
  EXPECT_EQ(back[5], kInf);
  EXPECT_NEAR(back[6], rows[6], std::fabs(rows[6]) * 0x1p-11f);
}

TEST(Codec, TinyRowsVanishWithoutNoise) {
  for (const int head_dim : kHeadDims) {
    for (const float scale : {1e-44f, 1e-38f, 1e-30f, 1e-23f, 3e-23f, 1e-22f, 1e-20f, 1e-12f, 1e-7f}) {
      const auto rows = gaussian(tile_floats(head_dim), 23, scale);
      for_each_codec([&](const auto& codec, bool k) {
        const auto back = round_trip(codec, head_dim, rows);
        for (size_t i = 0; i < rows.size(); ++i) {
          // f16's smallest step times the largest code is as close as a stored scale can come.
          ASSERT_LE(std::fabs(back[i] - rows[i]), 6 * scale + 6e-8f)
              << describe(codec.name, k, head_dim) << " scale " << scale;
        }
      });
    }
  }
}

TEST(Codec, SubnormalScalesStillCoverTheRow) {
  // A scale between two subnormal f16 steps must round up, or the largest elements leave the code range.
  constexpr float kStep = 0x1p-24f;
  const int head_dim = 64;
  for (const float steps : {0.4f, 1.2f, 1.4f, 2.3f, 5.5f, 100.4f}) {
    for (const auto& [k, codes] : {std::pair{KCodec::kInt8, 127.0f}, std::pair{KCodec::kFp8, 448.0f}}) {
      auto rows = gaussian(tile_floats(head_dim), 25);
      const float largest = steps * kStep * codes;
      for (float& x : rows) x = std::clamp(x, -1.0f, 1.0f) * largest;
      const auto back = round_trip(k_codec(k), head_dim, rows);
      const float bound = k == KCodec::kInt8 ? (steps + 1) * kStep / 2 : largest / 16;
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_LE(std::fabs(back[i] - rows[i]), bound * 1.001f) << k_codec(k).name << " at " << steps << " steps";
      }
    }
  }
}

TEST(Codec, LargeRowsWithinF16AreKept) {
  for (const int head_dim : kHeadDims) {
    auto rows = gaussian(tile_floats(head_dim), 24, 1.0f);
    for (float& x : rows) x = std::clamp(x, -4.0f, 4.0f) * 10000.0f;
    for_each_codec([&](const auto& codec, bool k) {
      const auto back = round_trip(codec, head_dim, rows);
      EXPECT_LT(relative_mse(rows.data(), back.data(), rows.size()), .14) << describe(codec.name, k, head_dim);
    });
  }
}

TEST(Codec, ConstantRowsAreExactForV) {
  // A constant row has no spread: everything is in `zero`.
  const std::vector<float> rows(tile_floats(64), 3.25f);
  for (const VCodec v : {VCodec::kTq4, VCodec::kTq3, VCodec::kTq2}) {
    EXPECT_EQ(round_trip(v_codec(v), 64, rows), rows) << v_codec(v).name;
  }
}

TEST(Codec, RowsOfOneMagnitudeAreExactUnderMatchedNorm) {
  // What a rotated one-hot vector looks like: every coordinate +-a, so one level is used and its norm is all there is.
  for (const int head_dim : kHeadDims) {
    std::mt19937 random(31);
    std::vector<float> rows(tile_floats(head_dim));
    for (float& x : rows) x = (random() & 1 ? 1.0f : -1.0f) / std::sqrt(static_cast<float>(head_dim));
    for (const KCodec id : {KCodec::kTq6, KCodec::kTq5, KCodec::kTq4, KCodec::kTq3, KCodec::kTq2}) {
      const auto back = round_trip(k_codec(id), head_dim, rows, {.inner_product_norm = false});
      for (size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(back[i] / rows[i], 1.0f, 0x1p-10f) << k_codec(id).name;
    }
  }
}

TEST(Codec, InnerProductNormKeepsTheScoreOfTheRowItself) {
  const int head_dim = 128;
  const size_t n = 128;
  const auto rows = gaussian(tile_floats(head_dim), 41);
  for (const KCodec id : {KCodec::kTq6, KCodec::kTq5, KCodec::kTq4, KCodec::kTq3, KCodec::kTq2}) {
    const auto inner = round_trip(k_codec(id), head_dim, rows, {.inner_product_norm = true});
    const auto matched = round_trip(k_codec(id), head_dim, rows, {.inner_product_norm = false});
    for (size_t t = 0; t < kTileTokens; ++t) {
      const float* x = rows.data() + t * n;
      const double energy_x = energy(x, n);
      ASSERT_NEAR(dot(x, inner.data() + t * n, n) / energy_x, 1.0, 6e-4);
      ASSERT_NEAR(energy(matched.data() + t * n, n) / energy_x, 1.0, 1.2e-3);
    }
  }
}

TEST(Codec, ValueRowsKeepTheirMean) {
  const int head_dim = 64;
  auto rows = gaussian(tile_floats(head_dim), 42);
  for (float& x : rows) x += 5.0f;
  for (const VCodec v : {VCodec::kTq4, VCodec::kTq3, VCodec::kTq2}) {
    const auto back = round_trip(v_codec(v), head_dim, rows);
    for (size_t t = 0; t < kTileTokens; ++t) {
      double mean = 0, mean_back = 0;
      for (size_t d = 0; d < 64; ++d) {
        mean += static_cast<double>(rows[t * 64 + d]) / 64;
        mean_back += static_cast<double>(back[t * 64 + d]) / 64;
      }
      ASSERT_NEAR(mean_back, mean, 5.0 * 0x1p-10) << v_codec(v).name << " row " << t;
    }
  }
}

/// Decodes a fixed byte pattern and hashes the result. Metadata is 1 (zero points .5), so the result is exact.
template <typename Info>
uint64_t decoded_pattern(const Info& codec, bool k, int head_dim) {
  std::vector<uint8_t> tile(codec.tile_bytes(head_dim));
  std::mt19937 random(99);
  for (auto& byte : tile) byte = static_cast<uint8_t>(random());
  const size_t metadata = metadata_bytes(codec.bits, k);
  for (size_t i = 0; i < metadata; i += 2) {
    const half_t h = float_to_half(i < 128 ? 1.0f : 0.5f);
    std::memcpy(tile.data() + tile.size() - metadata + i, &h, sizeof(h));
  }
  std::vector<float> rows(tile_floats(head_dim));
  codec.decode(tile.data(), head_dim, rows.data());
  for (float& x : rows) x = std::isnan(x) ? 12345.0f : x;  // NaN payloads are not part of the format
  return XXH64(rows.data(), rows.size() * sizeof(float), 0);
}

TEST(Codec, StoredBytesMeanWhatTheyMeant) {
  // A change here is a change of the page format: it needs a new kCodecVersion or kLayoutId, not a new number alone.
  const uint64_t expected_k[] = {6394265626494098035u,  17260176202376553660u, 9679394598444848789u,
                                 17220862484683943661u, 5361141922663890526u,  11434804579234857559u,
                                 9721018548101830751u,  7875398325440324340u};
  const uint64_t expected_v[] = {6394265626494098035u, 17260176202376553660u, 8851122612031625840u,
                                 7318476361219710893u, 17570092375388371922u, 3966106952356365410u};
  for (size_t i = 0; i < std::size(kAllK); ++i) {
    EXPECT_EQ(decoded_pattern(k_codec(kAllK[i]), true, 80), expected_k[i]) << k_codec(kAllK[i]).name;
  }
  for (size_t i = 0; i < std::size(kAllV); ++i) {
    EXPECT_EQ(decoded_pattern(v_codec(kAllV[i]), false, 80), expected_v[i]) << v_codec(kAllV[i]).name;
  }
}

TEST(FormatNames, EveryPairRoundTrips) {
  for (const KCodec k : kAllK) {
    for (const VCodec v : kAllV) {
      for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
        const LayerFormat format{k, v, k == KCodec::kF16 ? Centre::kNone : centre};
        const auto parsed = parse_format(format_name(format), centre);
        ASSERT_TRUE(parsed.ok()) << parsed.status().message();
        EXPECT_EQ(*parsed, format) << format_name(format);
      }
    }
  }
  EXPECT_EQ(format_name({KCodec::kF16, VCodec::kF16}), "f16");
  EXPECT_EQ(format_name({KCodec::kFp8, VCodec::kFp8}), "fp8");
  EXPECT_EQ(format_name(*parse_format("k8v8", Centre::kNone)), "int8");
  EXPECT_EQ(format_name(*parse_format("k4v3", Centre::kNone)), "k4v3");
}

TEST(FormatNames, AnF16KeyHasNoCentre) {
  EXPECT_EQ(parse_format("f16", Centre::kRotary)->centre, Centre::kNone);
  EXPECT_TRUE(is_direct(*parse_format("f16", Centre::kRotary)));
  EXPECT_EQ(parse_format("int8", Centre::kRotary)->centre, Centre::kRotary);
  EXPECT_FALSE(is_direct({KCodec::kF16, VCodec::kF16, Centre::kPost}));
}

TEST(FormatNames, ErrorsSayWhatIsWrongAndWhatIsValid) {
  const auto message = [](std::string_view name) {
    const auto parsed = parse_format(name, Centre::kNone);
    EXPECT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    return parsed.status().message();
  };
  EXPECT_EQ(
      message("q8_0"),
      "format 'q8_0' is unknown; valid are f16, fp8, int8, k<f16|fp8|8|6|5|4|3|2>v<f16|fp8|8|4|3|2>, e.g. k4v3, and "
      "lr<rank>+<exact rows>[/int4|/f16][/rotated], e.g. lr32+64");
  EXPECT_NE(message("k7v4").find("format 'k7v4': no K codec has width '7'"), std::string::npos) << message("k7v4");
  EXPECT_NE(message("k4v5").find("format 'k4v5': no V codec has width '5'"), std::string::npos) << message("k4v5");
  for (const char* bad :
       {"", "k", "v", "kv", "k4", "v4", "k4v", "kv4", "k4v4v4", " k4v4", "k4v4 ", "K4V4", "k44v4", "int8v8"}) {
    EXPECT_NE(message(bad).find("valid are"), std::string::npos) << bad;
  }
}

TEST(FormatNames, LowRankNamesRoundTrip) {
  for (const int rank : {1, 32, 1023}) {
    for (const int rows : {0, 64, 1023}) {
      for (const RowCodec codec : {RowCodec::kInt8, RowCodec::kInt4, RowCodec::kF16}) {
        for (const bool rotated : {false, true}) {
          LayerFormat format;
          format.low_rank = {rank, rows, codec, rotated};
          const auto parsed = parse_format(format_name(format), Centre::kRotary);
          ASSERT_TRUE(parsed.ok()) << parsed.status().message();
          EXPECT_EQ(*parsed, format) << format_name(format);
          EXPECT_FALSE(is_direct(*parsed));
        }
      }
    }
  }
  const auto parsed = parse_format("lr64+128/int4/rotated", Centre::kNone);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->low_rank, (LowRank{64, 128, RowCodec::kInt4, true}));
  EXPECT_EQ(format_name(*parse_format("lr32+64", Centre::kNone)), "lr32+64");
  EXPECT_EQ(format_name(*parse_format("lr8+0/f16", Centre::kNone)), "lr8+0/f16");
}

TEST(FormatNames, LowRankErrorsSayTheNumbers) {
  const auto message = [](std::string_view name) {
    const auto parsed = parse_format(name, Centre::kNone);
    EXPECT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    return parsed.status().message();
  };
  for (const char* range : {"lr0+64", "lr1024+64"}) {
    const std::string text = message(range);
    EXPECT_NE(text.find(std::string("format '") + range + "': rank "), std::string::npos) << text;
    EXPECT_NE(text.find("is not within 1..1023"), std::string::npos) << text;
  }
  EXPECT_NE(message("lr32+1024").find("exact rows 1024 not within 0..1023"), std::string::npos);
  for (const char* bad : {"lr", "lr+", "lr32", "lr32+", "lr+64", "lr-1+64", "lr32+-1", "lr32 +64", "lr32+ 64",
                          "lr99999999999+1", "lr32+99999999999", "lrs32+64", "lr32x+64"}) {
    EXPECT_NE(message(bad).find("needs a rank and a number of exact rows; valid are"), std::string::npos) << bad;
  }
  for (const char* bad : {"lr32+64/", "lr32+64/int8", "lr32+64/int4/f16", "lr32+64/rotated/int4", "lr32+64/rotated ",
                          "lr32+64/int4/", "lr32+64x"}) {
    EXPECT_NE(message(bad).find("ends in '"), std::string::npos) << message(bad);
  }
}

TEST(FormatNames, RandomNamesNeverCrash) {
  std::mt19937 random(77);
  constexpr std::string_view kAlphabet = "kvfpintlr+/1234568-_ \0\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string name(random() % 9, ' ');
    for (char& c : name) c = kAlphabet[random() % kAlphabet.size()];
    if (i % 4 == 0) name = "lr4+" + name;
    const auto parsed = parse_format(name, Centre::kPost);
    if (parsed.ok()) {
      EXPECT_EQ(*parse_format(format_name(*parsed), Centre::kPost), *parsed) << name;
    }
  }
}

TEST(FormatNames, Centres) {
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    EXPECT_EQ(*parse_centre(centre_name(centre)), centre);
  }
  const auto bad = parse_centre("mean");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "centre 'mean' is unknown; valid are none|post|rotary");
}

TEST(Codec, HeadDims) {
  for (const int head_dim : kHeadDims) EXPECT_TRUE(head_dim_supported(head_dim));
  for (const int head_dim : {-64, 0, 32, 72, 100, 112, 160, 512}) EXPECT_FALSE(head_dim_supported(head_dim));
}

}  // namespace
}  // namespace varve::format
