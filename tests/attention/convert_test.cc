// convert_plane against the reference: decode every tile, take the page's true mean without the exact rows, encode.

#include "attention/convert.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace varve::attention::test {
namespace {

class Convert : public testing::TestWithParam<const kernels::Kernels*> {};

struct Result {
  std::vector<float> k, v;  ///< [page_tokens][head_dim]
};

Result decode(const TestClass& cls, int tier, const uint8_t* slot, int kv_head) {
  const format::LayerSlot& layer = cls.slot(tier).layers[0];
  const size_t tile = static_cast<size_t>(kTileTokens * cls.spec().head_dim);
  Result out;
  out.k.resize(static_cast<size_t>(layer.plane.tiles) * tile);
  out.v.resize(out.k.size());
  for (int i = 0; i < layer.plane.tiles; ++i) {
    format::decode_tile(layer.format, cls.layers()[0].head, layer.plane, i, slot + cls.slot(tier).plane(0, kv_head),
                        out.k.data() + static_cast<size_t>(i) * tile, out.v.data() + static_cast<size_t>(i) * tile);
  }
  return out;
}

/// Relative squared difference of rows from `first` on.
double relative(const std::vector<float>& a, const std::vector<float>& b, size_t first) {
  double difference = 0, energy = 0;
  for (size_t i = first; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    energy += std::pow(static_cast<double>(b[i]), 2);
  }
  return difference / energy;
}

/// The reference conversion of KV head 1 of a page in tier 0 to tier 1.
std::vector<uint8_t> reference(const TestClass& cls, const TestSequence& sequence, int page, int exact) {
  const format::LayerSlot& to = cls.slot(1).layers[0];
  const Result rows = decode(cls, 0, sequence.page(page), 1);
  const auto dim = static_cast<size_t>(cls.spec().head_dim);
  std::vector<uint8_t> slot(cls.slot(1).bytes);
  std::vector<float> scratch(2 * kTileTokens * dim);
  uint8_t* plane = slot.data() + cls.slot(1).plane(0, 1);
  format::write_centre(to.format, cls.layers()[0].head, rows.k.data() + static_cast<size_t>(exact) * dim,
                       cls.spec().page_tokens - exact, exact, plane);
  for (int i = 0; i < to.plane.tiles; ++i) {
    const size_t at = static_cast<size_t>(i * kTileTokens) * dim;
    format::encode_tile(to.format, cls.layers()[0].head, to.plane, cls.geometry().encode, i, rows.k.data() + at,
                        rows.v.data() + at, scratch.data(), plane);
  }
  return slot;
}

TEST_P(Convert, IsDecodeMeanEncode) {
  const std::pair<LayerFormat, LayerFormat> kPairs[] = {
      {format_of("int8", Centre::kRotary), format_of("k4v3", Centre::kRotary)},
      {format_of("int8", Centre::kPost), format_of("k3v2", Centre::kRotary)},
      {format_of("fp8", Centre::kNone), format_of("k5v4", Centre::kPost)},
      {format_of("k4v3", Centre::kRotary), format_of("int8", Centre::kNone)},
      {format_of("k4v4", Centre::kRotary), format_of("f16")},
      {format_of("f16"), format_of("k6v4", Centre::kRotary)},
      {format_of("f16"), format_of("f16")},
  };
  for (const auto& [from, to] : kPairs) {
    for (const int head_dim : {64, 80, 128}) {
      for (const int exact : {0, 4, 16}) {
        ClassSpec spec;
        spec.tiers = {{from}, {to}};
        spec.q_heads = 2;
        spec.kv_heads = 2;
        spec.head_dim = head_dim;
        spec.n_rot = 64;
        spec.neox = exact == 4;
        const TestClass cls(spec);
        TestSequence sequence(cls, 512, 8);
        sequence.fill(512, {0});
        std::vector<uint8_t> got(cls.slot(1).bytes, 0xA5);
        std::vector<float> scratch(convert_scratch_floats(head_dim, spec.page_tokens));
        convert_plane(cls.layers()[0], cls.slot(0), cls.slot(1), cls.geometry().encode, *GetParam(), 0, 1, exact,
                      sequence.page(1), got.data(), scratch.data());
        const std::vector<uint8_t> want = reference(cls, sequence, 1, exact);
        const std::string what = format::format_name(from) + " to " + format::format_name(to) + " dim " +
                                 std::to_string(head_dim) + " exact " + std::to_string(exact);
        const size_t begin = cls.slot(1).plane(0, 1), n = cls.slot(1).layers[0].plane.bytes;
        size_t different = 0;
        for (size_t i = begin; i < begin + n; ++i) different += got[i] != want[i];
        if (std::string(GetParam()->name) == "generic") {
          EXPECT_EQ(different, 0u) << what;
        }
        EXPECT_LE(different, n / 200) << what;
        const Result a = decode(cls, 1, got.data(), 1), b = decode(cls, 1, want.data(), 1);
        EXPECT_LE(relative(a.k, b.k, 0), 1e-5) << what;
        EXPECT_LE(relative(a.v, b.v, 0), 1e-3) << what;
        for (size_t i = 0; i < begin; ++i) ASSERT_EQ(got[i], 0xA5) << "outside the plane: " << i;
      }
    }
  }
}

// The true mean is what makes narrow keys hold: a biased page re-encoded with its own rotary centre loses far less than
// one without, and a wrong pairing does not help.
TEST_P(Convert, RotaryCentreHoldsBiasedKeys) {
  double loss[3] = {};
  int at = 0;
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    ClassSpec spec;
    spec.tiers = {{format_of("f16")}, {format_of("k4v3", centre)}};
    const TestClass cls(spec);
    TestSequence sequence(cls, 512, 8);
    sequence.fill(512, {0});
    std::vector<uint8_t> slot(cls.slot(1).bytes);
    std::vector<float> scratch(convert_scratch_floats(64, 256));
    convert_plane(cls.layers()[0], cls.slot(0), cls.slot(1), {}, *GetParam(), 0, 0, 0, sequence.page(1), slot.data(),
                  scratch.data());
    loss[at++] = relative(decode(cls, 1, slot.data(), 0).k, decode(cls, 0, sequence.page(1), 0).k, 0);
  }
  EXPECT_LT(loss[2], loss[1] / 2);
  EXPECT_LT(loss[2], loss[0] / 20);
}

// Exact rows are attended elsewhere: an outlier among them must not move the centre of the others.
TEST_P(Convert, ExactRowsCarryNoWeight) {
  ClassSpec spec;
  spec.tiers = {{format_of("f16")}, {format_of("k4v3", Centre::kPost)}};
  const TestClass cls(spec);
  TestSequence sequence(cls, 256, 8, 1.0f);
  for (size_t i = 0; i < 4 * 64; ++i) sequence.rows(0).k[i] = 5000.0f;
  sequence.fill(256, {0});
  std::vector<float> scratch(convert_scratch_floats(64, 256));
  double loss[2];
  for (const int exact : {0, 4}) {
    std::vector<uint8_t> slot(cls.slot(1).bytes);
    convert_plane(cls.layers()[0], cls.slot(0), cls.slot(1), {}, *GetParam(), 0, 0, exact, sequence.page(0),
                  slot.data(), scratch.data());
    loss[exact / 4] = relative(decode(cls, 1, slot.data(), 0).k, decode(cls, 0, sequence.page(0), 0).k, 4 * 64);
  }
  EXPECT_LT(loss[1], loss[0] / 20);
}

/// A page in tier 0 converted to a block in tier 1, both layers' slots whole.
struct Block {
  Block(const TestClass& cls, const kernels::Kernels& kernels, const uint8_t* page, int exact,
        const format::TokenTraits& traits = {})
      : slot(cls.slot(1).bytes, 0xA5) {
    const LayerGeometry& layer = cls.layers()[0];
    const int page_tokens = cls.spec().page_tokens;
    std::unique_ptr<PageTurn> turn;
    if (cls.rotary() != nullptr) turn = std::make_unique<PageTurn>(*cls.rotary(), page_tokens / kTileTokens);
    const format::LowRank& format = cls.slot(1).layers[0].format.low_rank;
    const format::EncodeOptions options = cls.geometry().encode;
    const size_t floats = block_scratch_floats(layer, format, page_tokens, options);
    std::vector<float> scratch(floats + 16, 4711.0f);
    report = convert_to_block(layer, cls.slot(0), cls.slot(1), options, traits, kernels, turn.get(), 0, exact, page,
                              slot.data(), scratch.data());
    for (size_t i = floats; i < scratch.size(); ++i) EXPECT_EQ(scratch[i], 4711.0f) << "beyond the scratch";
    const format::LayerSlot& l = cls.slot(1).layers[0];
    for (size_t i = 0; i < slot.size(); ++i) {
      if (i >= l.offset && i < l.offset + l.block_bytes) continue;
      EXPECT_EQ(slot[i], 0xA5) << "outside the block: " << i;
    }
  }

  /// The whole of one KV head at its positions, through the scalar reference.
  Result rows(const TestClass& cls, int kv_head) const {
    const format::LayerSlot& l = cls.slot(1).layers[0];
    const format::BlockShape shape = format::block_shape(cls.layers()[0], l.format, cls.spec().page_tokens);
    const size_t tile = static_cast<size_t>(kTileTokens * shape.head_dim);
    Result out;
    out.k.resize(static_cast<size_t>(shape.tokens * shape.head_dim));
    out.v.resize(out.k.size());
    for (int i = 0; i < shape.tokens / kTileTokens; ++i) {
      const size_t at = static_cast<size_t>(i) * tile;
      format::decode_block_tile(shape, slot.data() + l.offset, kv_head, i, out.k.data() + at, out.v.data() + at);
    }
    if (shape.format.rotated) return out;
    for (int t = 0; t < shape.tokens; ++t) cls.rotary()->turn(out.k.data() + t * shape.head_dim, t);
    return out;
  }

  std::vector<uint8_t> slot;
  format::BlockReport report;
};

ClassSpec block_spec(const std::string& from, const std::string& to, int n_rot, bool neox) {
  ClassSpec spec;
  spec.tiers = {{format_of(from)}, {format_of(to)}};
  spec.q_heads = 2;
  spec.kv_heads = 2;
  spec.n_rot = n_rot;
  spec.neox = neox;
  spec.page_tokens = 128;
  return spec;
}

// With as many directions as rows there is nothing to lose but the rounding of u: turning back and forth is exact.
TEST_P(Convert, ABlockOfFullRankIsThePage) {
  for (const char* from : {"f16", "int8", "fp8"}) {
    for (const char* frame : {"", "/rotated"}) {
      for (const int n_rot : {64, 32}) {
        for (const bool neox : {true, false}) {
          for (const int exact : {0, 4}) {
            const TestClass cls(block_spec(from, std::string("lr127+0") + frame, n_rot, neox));
            TestSequence sequence(cls, 256, 8, 3.0f);
            sequence.fill(256, {0});
            const Block block(cls, *GetParam(), sequence.page(1), exact);
            for (int h = 0; h < 2; ++h) {
              const Result want = decode(cls, 0, sequence.page(1), h), got = block.rows(cls, h);
              const size_t first = static_cast<size_t>(exact) * 64;
              EXPECT_LE(relative(got.k, want.k, first), 1e-4) << from << frame << " n_rot " << n_rot << " head " << h;
              EXPECT_LE(relative(got.v, want.v, first), 1e-3) << from << frame << " n_rot " << n_rot << " head " << h;
            }
          }
        }
      }
    }
  }
}

// Keys with a constant part, as a bias makes it, have few directions before RoPE and many after.
TEST_P(Convert, TheFrameOfThePageStartHoldsBiasedKeys) {
  double loss[2] = {};
  int at = 0;
  for (const char* to : {"lr8+0", "lr8+0/rotated"}) {
    const TestClass cls(block_spec("f16", to, 64, true));
    TestSequence sequence(cls, 256, 8, 10.0f);
    sequence.fill(256, {0});
    const Block block(cls, *GetParam(), sequence.page(1), 0);
    loss[at++] = relative(block.rows(cls, 0).k, decode(cls, 0, sequence.page(1), 0).k, 0);
  }
  EXPECT_LT(loss[0], loss[1] / 5);
}

// A run that the text asks for is exact in K and V, whatever the error of others.
TEST_P(Convert, RunsAreExact) {
  const TestClass cls(block_spec("f16", "lr4+12/f16", 64, true));
  TestSequence sequence(cls, 256, 8, 1.0f);
  sequence.fill(256, {0});
  format::TokenTraits traits;
  traits.boost.assign(128, 1.0f);
  traits.runs = {{40, 50}};
  for (int t = 40; t < 50; ++t) traits.boost[static_cast<size_t>(t)] = 20.0f;
  const Block block(cls, *GetParam(), sequence.page(1), 0, traits);
  EXPECT_EQ(block.report.rows_of_runs, 10);
  const Result want = decode(cls, 0, sequence.page(1), 1), got = block.rows(cls, 1);
  for (size_t i = 40 * 64; i < 50 * 64; ++i) {
    EXPECT_NEAR(got.k[i], want.k[i], 4e-3f);
    EXPECT_NEAR(got.v[i], want.v[i], 4e-3f);
  }
}

// Out of a block: the codes of what it holds, by the reference and by the kernels.
TEST_P(Convert, FromABlock) {
  for (const char* to : {"lr16+20", "lr16+20/int4/rotated"}) {
    for (const char* back : {"f16", "int8", "k4v3"}) {
      ClassSpec spec = block_spec("int8", to, 32, false);
      spec.tiers.push_back({format_of(back)});
      const TestClass cls(spec);
      TestSequence sequence(cls, 256, 8, 1.0f);
      sequence.fill(256, {0});
      const Block block(cls, *GetParam(), sequence.page(1), 0);
      const PageTurn turn(*cls.rotary(), 2);
      BlockReader reader;
      ASSERT_TRUE(reader.reserve(16, 64, 1));
      std::vector<uint8_t> slot(cls.slot(2).bytes, 0xA5);
      std::vector<float> scratch(convert_scratch_floats(64, 128));
      for (int h = 0; h < 2; ++h) {
        convert_from_block(cls.layers()[0], cls.slot(1), cls.slot(2), {}, *GetParam(), &turn, 0, h, 0,
                           block.slot.data(), slot.data(), reader, scratch.data());
        const Result want = block.rows(cls, h), got = decode(cls, 2, slot.data(), h);
        const double bound = std::string(back) == "k4v3" ? 0.05 : 1e-4;
        EXPECT_LE(relative(got.k, want.k, 0), bound) << to << " to " << back << " head " << h;
        EXPECT_LE(relative(got.v, want.v, 0), bound) << to << " to " << back << " head " << h;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Convert, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
