// Feeding a prompt in chunks: what the pieces may and may not change, and what sealing leaves in pages and strips.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support.h"

namespace varve::attention::test {
namespace {

class Steps : public testing::TestWithParam<const kernels::Kernels*> {};

/// Feeds [from, tokens) in chunks; returns all outputs, [layer][position - from].
StepOutput feed(const kernels::Kernels& kernels, TestSequence& sequence, int from, int tokens, int chunk) {
  ClassAttention attention(sequence.cls().geometry(), kernels, 2);
  StepOutput all(sequence.cls().layers().size());
  for (int past = from; past < tokens; past += chunk) {
    const StepOutput output = run_step(attention, {{&sequence, past, std::min(chunk, tokens - past)}}, 2);
    for (size_t i = 0; i < all.size(); ++i) all[i].insert(all[i].end(), output[i].begin(), output[i].end());
  }
  return all;
}

double largest_relative_difference(const std::vector<float>& a, const std::vector<float>& b, size_t dim) {
  double largest = 0;
  for (size_t row = 0; row + dim <= a.size(); row += dim) {
    double difference = 0, norm = 0;
    for (size_t d = row; d < row + dim; ++d) {
      difference += std::pow(static_cast<double>(a[d]) - static_cast<double>(b[d]), 2);
      norm += std::pow(static_cast<double>(a[d]), 2);
    }
    const double relative = std::sqrt(difference / norm);
    if (!(relative <= largest)) largest = relative;
  }
  return largest;
}

TEST_P(Steps, ChunksDoNotMatterOverDensePages) {
  ClassSpec spec;
  spec.tiers = {{format_of("f16"), format_of("f16")}};
  spec.q_heads = 3;
  const TestClass cls(spec);
  constexpr int kTokens = 600;
  StepOutput first;
  for (const int chunk : {kTokens, 1, 7, 64, 512}) {
    TestSequence sequence(cls, kTokens, 4, 1.0f);
    const StepOutput output = feed(*GetParam(), sequence, 0, kTokens, chunk);
    if (first.empty()) first = output;
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_LE(largest_relative_difference(first[i], output[i], 64), 2e-5) << "chunk " << chunk;
    }
  }
}

// Coded formats: outputs depend on chunks (rows of a step are attended in f16, older tiles as coded), but the cache
// does not: a sealed tile holds its own f16-rounded rows and a centre frozen at its page's first tile, and the open
// tile and the sinks are those rows. So pages and strips have the same bytes however the prompt was fed.
TEST_P(Steps, ChunksDoNotChangeTheCache) {
  for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
    ClassSpec spec;
    spec.tiers = {{format_of("int8", centre), format_of("k4v3", centre), format_of("f16")}};
    spec.q_heads = 2;
    spec.kv_heads = 2;
    spec.page_tokens = 128;
    const TestClass cls(spec);
    constexpr int kTokens = 64 * 5 + 21;
    std::vector<std::vector<uint8_t>> first;
    for (const int chunk : {kTokens, 1, 7, 64, 150}) {
      TestSequence sequence(cls, kTokens, 5);
      feed(*GetParam(), sequence, 0, kTokens, chunk);
      std::vector<std::vector<uint8_t>> now;
      for (int i = 0; i < sequence.pages(); ++i) {
        for (int layer = 0; layer < 3; ++layer) {
          for (int h = 0; h < 2; ++h) {
            const format::PlaneLayout& plane = cls.slot(0).layers[static_cast<size_t>(layer)].plane;
            const uint8_t* at = sequence.page(i) + cls.slot(0).plane(layer, h);
            now.emplace_back(at, at + plane.bytes);
          }
        }
      }
      now.emplace_back(sequence.strip(), sequence.strip() + cls.strip().sink_bytes);
      // Of the open tile, the rows in use: the rest are leftovers.
      for (size_t layer = 0; layer < 2; ++layer) {
        const size_t bytes = cls.strip().open_head_bytes[layer];
        for (size_t h = 0; h < 2; ++h) {
          const uint8_t* k = sequence.strip() + cls.strip().open_offset[layer] + h * bytes;
          const size_t used = static_cast<size_t>(kTokens % 64) * 64 * sizeof(half_t);
          now.emplace_back(k, k + used);
          now.emplace_back(k + bytes / 2, k + bytes / 2 + used);
        }
      }
      if (first.empty()) first = now;
      EXPECT_TRUE(first == now) << "chunk " << chunk << " centre " << format::centre_name(centre);
    }
  }
}

// What append and merge leave in pages against the reference encoders fed with the f16-rounded rows. The generic
// kernels give the same bytes; SIMD kernels may fall on the other side of a rounding threshold here and there.
TEST_P(Steps, SealedTilesAreTheReferenceEncoding) {
  for (const char* name : {"fp8", "int8", "k6v4", "k5v3", "k4v3", "k3v2", "k2v2"}) {
    for (const Centre centre : {Centre::kNone, Centre::kPost, Centre::kRotary}) {
      ClassSpec spec;
      spec.tiers = {{format_of(name, centre)}};
      spec.head_dim = 80;
      spec.n_rot = 40;
      spec.page_tokens = 128;
      const TestClass cls(spec);
      constexpr int kTokens = 400;
      TestSequence fed(cls, kTokens, 6), built(cls, kTokens, 6);
      feed(*GetParam(), fed, 0, kTokens, 150);
      built.fill(kTokens, {0});
      const format::LayerSlot& slot = cls.slot(0).layers[0];
      size_t bytes = 0, different = 0;
      double error = 0, energy = 0;
      for (int tile = 0; tile < kTokens / 64; ++tile) {
        const int at = tile % 2;
        const uint8_t* got = fed.page(tile / 2) + cls.slot(0).plane(0, 0);
        const uint8_t* want = built.page(tile / 2) + cls.slot(0).plane(0, 0);
        const auto compare = [&](size_t offset, size_t n) {
          for (size_t i = offset; i < offset + n; ++i) different += got[i] != want[i];
          bytes += n;
        };
        compare(0, slot.plane.k_header_bytes);
        compare(slot.plane.k_tile(at), slot.plane.k_tile_bytes);
        compare(slot.plane.v_tile(at), slot.plane.v_tile_bytes);
        std::vector<float> k[2], v[2];
        for (int side = 0; side < 2; ++side) {
          k[side].resize(64 * 80);
          v[side].resize(64 * 80);
          format::decode_tile(slot.format, cls.layers()[0].head, slot.plane, at, side == 0 ? got : want, k[side].data(),
                              v[side].data());
        }
        for (size_t i = 0; i < k[0].size(); ++i) {
          error += std::pow(k[0][i] - k[1][i], 2) + std::pow(v[0][i] - v[1][i], 2);
          energy += std::pow(v[1][i], 2);
        }
      }
      const std::string what = std::string(name) + " centre " + format::centre_name(centre);
      if (std::string(GetParam()->name) == "generic") {
        EXPECT_EQ(different, 0u) << what;
      }
      EXPECT_LE(different, bytes / 200) << what;
      EXPECT_LE(error, 1e-3 * energy) << what;
    }
  }
}

// Rows beyond the open tile wait in the class's scratch, which is counted; a decode step needs no tail there.
TEST_P(Steps, TailScratchIsCounted) {
  ClassSpec spec;
  spec.tiers = {{format_of("int8")}};
  const TestClass cls(spec);
  ClassAttention attention(cls.geometry(), *GetParam(), 1);
  TestSequence sequence(cls, 401, 7);
  run_step(attention, {{&sequence, 0, 1}}, 1);
  const size_t decode = attention.scratch_bytes();
  run_step(attention, {{&sequence, 1, 400}}, 1);
  EXPECT_GE(attention.scratch_bytes(), decode + 401 * 2 * 64 * sizeof(half_t));
  EXPECT_GT(attention.activation_bytes(), 400 * 2 * 64 * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Steps, testing::ValuesIn(kernels::available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace varve::attention::test
