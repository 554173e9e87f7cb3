// Planes: centring, the turn of the centre with position, and what a reader adds back.

#include "format/plane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support.h"

namespace varve::format {
namespace {

using namespace test;

std::vector<float> frequencies(int pairs, double base) {
  std::vector<float> theta;
  for (int p = 0; p < pairs; ++p) theta.push_back(static_cast<float>(std::pow(base, -static_cast<double>(p) / pairs)));
  return theta;
}

/// Keys as a model with a K bias makes them: R(start + o).(bias + noise).
std::vector<float> biased_keys(const RotaryTable& rotary, int tokens, int start, float bias, uint32_t seed) {
  const size_t n = static_cast<size_t>(rotary.head_dim());
  auto rows = gaussian(static_cast<size_t>(tokens) * n, seed);
  const auto constant = gaussian(n, seed + 1, bias);
  for (int t = 0; t < tokens; ++t) {
    float* row = rows.data() + static_cast<size_t>(t) * n;
    for (size_t d = 0; d < n; ++d) row[d] += constant[d];
    rotary.turn(row, start + t);
  }
  return rows;
}

/// What is left to code of `rows` (whole tiles) once the centre of `format` is removed.
std::vector<float> residual(const LayerFormat& format, const HeadGeometry& geometry, std::vector<float> rows) {
  const size_t n = static_cast<size_t>(geometry.head_dim);
  std::vector<uint8_t> header(n * sizeof(half_t));
  const int tokens = static_cast<int>(rows.size() / n);
  write_centre(format, geometry, rows.data(), tokens, 0, header.data());
  for (int tile = 0; tile < tokens / kTileTokens; ++tile) {
    add_centre(format, geometry, tile, -1.0f, header.data(),
               rows.data() + static_cast<size_t>(tile) * tile_floats(geometry.head_dim));
  }
  return rows;
}

struct Shape {
  int head_dim, n_rot;
  bool neox;
  double base;
};
// Bases small enough that every pair turns by radians within a page.
const Shape kShapes[] = {{64, 64, false, 100},  {64, 64, true, 100}, {128, 128, true, 100}, {80, 80, false, 100},
                         {80, 32, true, 60},    {96, 96, true, 100}, {192, 64, false, 100}, {256, 256, true, 100},
                         {128, 64, false, 100}, {256, 64, true, 100}};

TEST(Rotary, TurnsAddUpAndUndo) {
  for (const Shape& s : kShapes) {
    const RotaryTable table(frequencies(s.n_rot / 2, s.base), s.head_dim, s.neox);
    const auto row = gaussian(static_cast<size_t>(s.head_dim), 3);
    auto once = row, twice = row;
    table.turn(once.data(), 1000);
    table.turn(twice.data(), 937);
    table.turn(twice.data(), 63);
    EXPECT_LT(relative_mse(once.data(), twice.data(), row.size()), 1e-12);
    table.turn(once.data(), -1000);
    EXPECT_LT(relative_mse(row.data(), once.data(), row.size()), 1e-12);
    for (int d = s.n_rot; d < s.head_dim; ++d) EXPECT_EQ(twice[static_cast<size_t>(d)], row[static_cast<size_t>(d)]);
  }
}

TEST(Rotary, PairsOfBothConventions) {
  const RotaryTable norm(frequencies(16, 100), 64, false), neox(frequencies(16, 100), 64, true);
  EXPECT_EQ(norm.first(3), 6);
  EXPECT_EQ(norm.second(3), 7);
  EXPECT_EQ(neox.first(3), 3);
  EXPECT_EQ(neox.second(3), 19);
  // A quarter turn takes (1, 0) to (0, 1).
  const RotaryTable quarter({static_cast<float>(M_PI / 2)}, 64, false);
  std::vector<float> row(64, 0.0f);
  row[0] = 1;
  quarter.turn(row.data(), 1);
  EXPECT_NEAR(row[0], 0, 1e-6);
  EXPECT_NEAR(row[1], 1, 1e-6);
}

TEST(Rotary, TablesAgreeWithTheTurn) {
  const RotaryTable table(frequencies(32, 10000), 64, true);
  for (const int t : {0, 1, 31, 63}) {
    for (const int p : {0, 7, 31}) {
      std::vector<float> row(64, 0.0f);
      row[static_cast<size_t>(table.first(p))] = 1;
      table.turn(row.data(), t);
      EXPECT_NEAR(table.cos_in_tile()[t * table.pairs() + p], row[static_cast<size_t>(table.first(p))], 1e-7);
      EXPECT_NEAR(table.sin_in_tile()[t * table.pairs() + p], row[static_cast<size_t>(table.second(p))], 1e-7);
    }
  }
  std::vector<float> row(64, 0.0f);
  row[5] = 1;
  table.turn(row.data(), kTileTokens);
  EXPECT_NEAR(table.cos_tile_step()[5], row[5], 1e-7);
  EXPECT_NEAR(table.sin_tile_step()[5], row[5 + 32], 1e-7);
}

TEST(Rotary, FingerprintCoversEverything) {
  const auto theta = frequencies(32, 10000);
  const uint64_t base = RotaryTable(theta, 64, true).fingerprint();
  EXPECT_EQ(RotaryTable(theta, 64, true).fingerprint(), base);
  EXPECT_NE(RotaryTable(theta, 64, false).fingerprint(), base);
  EXPECT_NE(RotaryTable(theta, 128, true).fingerprint(), base);
  EXPECT_NE(RotaryTable(frequencies(16, 10000), 64, true).fingerprint(), base);
  auto changed = theta;
  changed[31] = std::nextafter(changed[31], 1.0f);
  EXPECT_NE(RotaryTable(changed, 64, true).fingerprint(), base);
}

TEST(Centre, TheRightPairingRemovesTheBiasAndTheWrongOneDoesNot) {
  constexpr int kTokens = 256;
  for (const Shape& s : kShapes) {
    for (const int start : {0, 256, 30208}) {
      const RotaryTable right(frequencies(s.n_rot / 2, s.base), s.head_dim, s.neox);
      const RotaryTable wrong(frequencies(s.n_rot / 2, s.base), s.head_dim, !s.neox);
      auto keys = biased_keys(right, kTokens, start, 5.0f, 100);
      const size_t n = static_cast<size_t>(s.head_dim);
      if (s.n_rot < s.head_dim) {  // dims that do not turn lose their mean under any pairing: look at the others
        for (size_t i = 0; i < keys.size(); ++i) {
          if (static_cast<int>(i % n) >= s.n_rot) keys[i] = 0;
        }
      }
      const double before = energy(keys.data(), keys.size());
      const double noise = static_cast<double>(kTokens * s.n_rot);
      const LayerFormat rotary{KCodec::kTq4, VCodec::kTq3, Centre::kRotary};
      const auto good = residual(rotary, {s.head_dim, nullptr, &right}, keys);
      const auto bad = residual(rotary, {s.head_dim, nullptr, &wrong}, keys);
      const auto post = residual({KCodec::kTq4, VCodec::kTq3, Centre::kPost}, {s.head_dim, nullptr, &right}, keys);
      const std::string what = "head_dim " + std::to_string(s.head_dim) + ", n_rot " + std::to_string(s.n_rot) +
                               (s.neox ? ", neox" : ", norm") + ", start " + std::to_string(start);
      EXPECT_LT(energy(good.data(), good.size()), 1.05 * noise) << what;
      EXPECT_GT(energy(bad.data(), bad.size()), 0.7 * before) << what;
      EXPECT_GT(energy(post.data(), post.size()), 0.7 * before) << what;
    }
  }
}

TEST(Centre, DimsThatDoNotTurnLoseTheirPlainMean) {
  const RotaryTable rotary(frequencies(16, 100), 128, true);  // n_rot 32 of 128
  const auto keys = biased_keys(rotary, 256, 512, 5.0f, 7);
  const auto left = residual({KCodec::kInt8, VCodec::kInt8, Centre::kRotary}, {128, nullptr, &rotary}, keys);
  for (size_t d = 0; d < 128; ++d) {
    double mean = 0;
    for (size_t t = 0; t < 256; ++t) mean += static_cast<double>(left[t * 128 + d]) / 256;
    if (d >= 32) {
      EXPECT_NEAR(mean, 0, 20 * 0x1p-12) << d;  // half an f16 step of the largest centre
    }
  }
}

TEST(Centre, IsTheSameWhereverTheRowsAreCut) {
  // u of a page from one call over 256 rows, and u of a later run of rows, placed by its page offset.
  const RotaryTable rotary(frequencies(32, 100), 64, true);
  const HeadGeometry geometry{64, nullptr, &rotary};
  const LayerFormat format{KCodec::kInt8, VCodec::kInt8, Centre::kRotary};
  const auto bias = gaussian(64, 1, 10.0f);
  std::vector<float> keys;
  for (int t = 0; t < 256; ++t) {  // pure bias: every run has the same centre
    auto row = bias;
    rotary.turn(row.data(), t);
    keys.insert(keys.end(), row.begin(), row.end());
  }
  std::vector<half_t> whole(64), part(64);
  write_centre(format, geometry, keys.data(), 256, 0, reinterpret_cast<uint8_t*>(whole.data()));
  for (const int offset : {0, 1, 64, 100, 200}) {
    write_centre(format, geometry, keys.data() + offset * 64, 256 - offset, offset,
                 reinterpret_cast<uint8_t*>(part.data()));
    for (size_t d = 0; d < 64; ++d) {
      EXPECT_NEAR(half_to_float(whole[d]), bias[d], std::fabs(bias[d]) * 0x1p-10f + 1e-5f);
      EXPECT_NEAR(half_to_float(part[d]), bias[d], std::fabs(bias[d]) * 0x1p-10f + 1e-5f) << "offset " << offset;
    }
  }
}

TEST(Centre, LostRowsStayOutOfTheMean) {
  const RotaryTable rotary(frequencies(32, 100), 64, true);
  for (const Centre centre : {Centre::kPost, Centre::kRotary}) {
    const LayerFormat format{KCodec::kInt8, VCodec::kInt8, centre};
    const HeadGeometry geometry{64, nullptr, &rotary};
    auto keys = biased_keys(rotary, 64, 0, 5.0f, 9);
    std::vector<uint8_t> clean(128), poisoned(128);
    // The same sum: the rows that will be lost are zero rows, counted in one mean and not in the other.
    for (const int t : {3, 40}) std::fill_n(keys.begin() + t * 64, 64, 0.0f);
    write_centre(format, geometry, keys.data(), 64, 0, clean.data());
    keys[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
    keys[40 * 64 + 63] = 1e6f;
    write_centre(format, geometry, keys.data(), 64, 0, poisoned.data());
    for (size_t d = 0; d < 64; ++d) {
      half_t a, b;
      std::memcpy(&a, clean.data() + 2 * d, 2);
      std::memcpy(&b, poisoned.data() + 2 * d, 2);
      EXPECT_NEAR(half_to_float(b), half_to_float(a) * 64 / 62, std::fabs(half_to_float(a)) * 0x1p-9f + 1e-5f) << d;
    }
    const std::vector<float> all_lost(64 * 64, std::numeric_limits<float>::infinity());
    write_centre(format, geometry, all_lost.data(), 64, 0, poisoned.data());
    EXPECT_EQ(poisoned, std::vector<uint8_t>(128, 0));
  }
}

/// A plane, its geometry and the rows it was made from.
struct Plane {
  Plane(const LayerFormat& f, const Shape& s, int tokens, float bias)
      : format(f),
        rotary(frequencies(s.n_rot / 2, s.base), s.head_dim, s.neox),
        rotation(*Rotation::create(s.head_dim, 7)),
        geometry{s.head_dim, &rotation, &rotary},
        layout(plane_layout(f, s.head_dim, tokens)),
        k(biased_keys(rotary, tokens, 4096, bias, 50)),
        v(gaussian(k.size(), 51, 0.5f)),
        bytes(layout.bytes + 64, 0xa5) {
    write_centre(format, geometry, k.data(), tokens, 0, bytes.data());
    std::vector<float> scratch(2 * tile_floats(s.head_dim));
    for (int i = 0; i < layout.tiles; ++i) {
      encode_tile(format, geometry, layout, options, i, k.data() + at(i), v.data() + at(i), scratch.data(),
                  bytes.data());
    }
  }
  size_t at(int tile) const { return static_cast<size_t>(tile) * tile_floats(geometry.head_dim); }

  LayerFormat format;
  RotaryTable rotary;
  Rotation rotation;
  HeadGeometry geometry;
  PlaneLayout layout;
  EncodeOptions options;
  std::vector<float> k, v;
  std::vector<uint8_t> bytes;
};

double k_bound(KCodec k) {
  switch (k) {
    case KCodec::kF16:
      return 1e-6;
    case KCodec::kFp8:
      return 9e-4;
    case KCodec::kInt8:
      return 1.3e-4;
    case KCodec::kTq6:
      return 8e-4;
    case KCodec::kTq5:
      return .003;
    case KCodec::kTq4:
      return .0105;
    case KCodec::kTq3:
      return .037;
    default:
      return .135;
  }
}

TEST(Plane, RoundTripsEveryCodecHeadDimAndCentre) {
  for (const Shape& s : kShapes) {
    for (const KCodec k : kAllK) {
      for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
        const VCodec v = kAllV[static_cast<size_t>(k) % std::size(kAllV)];
        const bool rotary = centre == Centre::kRotary;
        const Plane p({k, v, centre}, s, 128, rotary ? 20.0f : 0.0f);
        const std::string what = format_name(p.format) + ", " + centre_name(centre) + ", " + std::to_string(s.head_dim);
        std::vector<float> k_back(tile_floats(s.head_dim)), v_back(tile_floats(s.head_dim));
        for (int i = 0; i < p.layout.tiles; ++i) {
          decode_tile(p.format, p.geometry, p.layout, i, p.bytes.data(), k_back.data(), v_back.data());
          // Errors relative to the noise, which has unit variance: the bias costs nothing once it is removed.
          const double unit = static_cast<double>(k_back.size()) / energy(p.k.data() + p.at(i), k_back.size());
          EXPECT_LT(relative_mse(p.k.data() + p.at(i), k_back.data(), k_back.size()), k_bound(k) * unit * 1.15) << what;
          EXPECT_LT(relative_mse(p.v.data() + p.at(i), v_back.data(), v_back.size()), .14) << what;
        }
        for (size_t b = p.layout.bytes; b < p.bytes.size(); ++b) ASSERT_EQ(p.bytes[b], 0xa5) << what;
      }
    }
  }
}

TEST(Plane, AnOffsetCostsItsOwnEnergyUnlessItIsRemoved) {
  // A constant key offset of ten times the signal. Errors are relative to the signal, which is what attention reads.
  const int head_dim = 128;
  const RotaryTable still({}, head_dim, true);  // nothing turns: post-RoPE and rotary centres agree
  const Rotation rotation = *Rotation::create(head_dim, 7);
  const HeadGeometry geometry{head_dim, &rotation, &still};
  const auto keys = biased_keys(still, kTileTokens, 0, 10.0f, 60);
  const auto error = [&](KCodec codec, Centre centre) {
    const LayerFormat format{codec, VCodec::kInt8, centre};
    const PlaneLayout layout = plane_layout(format, head_dim, kTileTokens);
    std::vector<uint8_t> plane(layout.bytes);
    std::vector<float> scratch(2 * keys.size()), back(keys.size());
    write_centre(format, geometry, keys.data(), kTileTokens, 0, plane.data());
    encode_tile(format, geometry, layout, {}, 0, keys.data(), keys.data(), scratch.data(), plane.data());
    decode_tile(format, geometry, layout, 0, plane.data(), back.data(), nullptr);
    return relative_mse(keys.data(), back.data(), keys.size()) * energy(keys.data(), keys.size()) /
           static_cast<double>(keys.size());
  };
  EXPECT_GT(error(KCodec::kTq3, Centre::kNone), 2.0);
  EXPECT_GT(error(KCodec::kFp8, Centre::kNone), .05);
  for (const Centre centre : {Centre::kPost, Centre::kRotary}) {
    EXPECT_NEAR(error(KCodec::kTq3, centre), .034, .002);
    EXPECT_LT(error(KCodec::kFp8, centre), .001);
  }
}

TEST(Plane, EitherOutputOfDecodeMayBeNull) {
  const Plane p({KCodec::kTq4, VCodec::kTq3, Centre::kRotary}, kShapes[1], 64, 10.0f);
  std::vector<float> k(tile_floats(64)), v(tile_floats(64)), k_only(k.size()), v_only(v.size());
  decode_tile(p.format, p.geometry, p.layout, 0, p.bytes.data(), k.data(), v.data());
  decode_tile(p.format, p.geometry, p.layout, 0, p.bytes.data(), k_only.data(), nullptr);
  decode_tile(p.format, p.geometry, p.layout, 0, p.bytes.data(), nullptr, v_only.data());
  EXPECT_EQ(k, k_only);
  EXPECT_EQ(v, v_only);
}

TEST(Plane, LargeCentresAreAddedBackExactly) {
  // A key offset of norm 600 to 900: the error of the decoded key is the codec's own error on the residual.
  for (const Shape& s : kShapes) {
    for (const Centre centre : {Centre::kPost, Centre::kRotary}) {
      const float bias = 900.0f / std::sqrt(static_cast<float>(s.head_dim));
      for (const KCodec codec : {KCodec::kInt8, KCodec::kFp8, KCodec::kTq4}) {
        // A post-RoPE centre only removes what does not turn; give it a table without turning pairs.
        const Shape shape{s.head_dim, centre == Centre::kPost ? 0 : s.n_rot, s.neox, s.base};
        const Plane p({codec, VCodec::kInt8, centre}, shape, 448, bias);
        std::vector<float> decoded(tile_floats(s.head_dim));
        for (const int tile : {0, 3, 6}) {
          std::vector<float> left(p.k.begin() + static_cast<std::ptrdiff_t>(p.at(tile)),
                                  p.k.begin() + static_cast<std::ptrdiff_t>(p.at(tile) + decoded.size()));
          add_centre(p.format, p.geometry, tile, -1.0f, p.bytes.data(), left.data());
          auto turned = left;
          p.rotation.forward(turned.data(), kTileTokens);
          auto coded = round_trip(k_codec(codec), s.head_dim, turned);
          p.rotation.inverse(coded.data(), kTileTokens);
          decode_tile(p.format, p.geometry, p.layout, tile, p.bytes.data(), decoded.data(), nullptr);
          double own = 0, whole = 0;
          for (size_t i = 0; i < decoded.size(); ++i) {
            const float codec_error = coded[i] - left[i];
            const float key_error = decoded[i] - p.k[p.at(tile) + i];
            ASSERT_NEAR(key_error, codec_error, 1e-4) << format_name(p.format) << " tile " << tile << " at " << i;
            own += static_cast<double>(codec_error) * static_cast<double>(codec_error);
            whole += static_cast<double>(key_error) * static_cast<double>(key_error);
          }
          EXPECT_NEAR(whole / own, 1.0, 1e-3) << format_name(p.format) << " tile " << tile;
        }
      }
    }
  }
}

TEST(Plane, AReaderAddsTheCentreToScoresAsCosinesAndSines) {
  // q.R(o)u = sum_p a_p cos(o theta_p) + b_p sin(o theta_p) + sum_d q_d u_d over dims that do not turn, with
  // a = q_i u_i + q_j u_j, b = q_j u_i - q_i u_j; from tile to tile (a, b) turn by the table's step.
  for (const Shape& s : kShapes) {
    const Plane p({KCodec::kInt8, VCodec::kInt8, Centre::kRotary}, s, 256, 50.0f);
    const auto q = gaussian(static_cast<size_t>(s.head_dim), 88);
    std::vector<double> u;
    for (int d = 0; d < s.head_dim; ++d) {
      half_t h;
      std::memcpy(&h, p.bytes.data() + 2 * d, sizeof(h));
      u.push_back(static_cast<double>(half_to_float(h)));
    }
    const int pairs = p.rotary.pairs();
    std::vector<double> a, b;
    double constant = 0;
    for (int d = 2 * pairs; d < s.head_dim; ++d)
      constant += static_cast<double>(q[static_cast<size_t>(d)]) * u[static_cast<size_t>(d)];
    for (int i = 0; i < pairs; ++i) {
      const size_t x = static_cast<size_t>(p.rotary.first(i)), y = static_cast<size_t>(p.rotary.second(i));
      a.push_back(static_cast<double>(q[x]) * u[x] + static_cast<double>(q[y]) * u[y]);
      b.push_back(static_cast<double>(q[y]) * u[x] - static_cast<double>(q[x]) * u[y]);
    }
    for (int tile = 0; tile < p.layout.tiles; ++tile) {
      std::vector<float> removed(tile_floats(s.head_dim), 0.0f);
      add_centre(p.format, p.geometry, tile, 1.0f, p.bytes.data(), removed.data());
      for (int t = 0; t < kTileTokens; ++t) {
        double score = constant;
        for (int i = 0; i < pairs; ++i) {
          const double c = static_cast<double>(p.rotary.cos_in_tile()[t * pairs + i]);
          const double sine = static_cast<double>(p.rotary.sin_in_tile()[t * pairs + i]);
          score += a[static_cast<size_t>(i)] * c + b[static_cast<size_t>(i)] * sine;
        }
        const double expected = dot(q.data(), removed.data() + t * s.head_dim, static_cast<size_t>(s.head_dim));
        ASSERT_NEAR(score, expected, 5e-3) << "head_dim " << s.head_dim << " tile " << tile << " token " << t;
      }
      for (size_t i = 0; i < a.size(); ++i) {
        const double c = static_cast<double>(p.rotary.cos_tile_step()[i]);
        const double sine = static_cast<double>(p.rotary.sin_tile_step()[i]);
        const double turned = a[i] * c + b[i] * sine;
        b[i] = b[i] * c - a[i] * sine;
        a[i] = turned;
      }
    }
  }
}

TEST(Plane, ALostKeyStaysAlone) {
  const Shape s = kShapes[1];
  Plane p({KCodec::kTq3, VCodec::kTq3, Centre::kRotary}, s, 64, 30.0f);
  p.k[5 * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
  p.v[9 * 64 + 1] = std::numeric_limits<float>::infinity();
  std::vector<float> scratch(2 * tile_floats(64)), k(tile_floats(64)), v(tile_floats(64));
  encode_tile(p.format, p.geometry, p.layout, p.options, 0, p.k.data(), p.v.data(), scratch.data(), p.bytes.data());
  decode_tile(p.format, p.geometry, p.layout, 0, p.bytes.data(), k.data(), v.data());
  for (size_t t = 0; t < 64; ++t) {
    for (size_t d = 0; d < 64; ++d) {
      ASSERT_EQ(std::isnan(k[t * 64 + d]), t == 5) << t << "," << d;
      ASSERT_EQ(std::isnan(v[t * 64 + d]), t == 9) << t << "," << d;
    }
  }
}

}  // namespace
}  // namespace varve::format
