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

INSTANTIATE_TEST_SUITE_P(Kernels, Convert, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
