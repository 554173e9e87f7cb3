// From text to the rows of a block: the tokens that the text marks are those that the block keeps.

#include <gtest/gtest.h>

#include <random>

#include "format/lr/encode.h"
#include "support.h"

namespace varve::content {
namespace {

using namespace test;

/// The exact rows of a page of noise, in which every row is as bad as the next and only the text can tell them apart.
std::vector<int> exact_rows(const format::BlockShape& shape, const format::TokenTraits& traits) {
  const format::LowRankOptions options;
  std::mt19937 random(3);
  std::normal_distribution<float> noise;
  const auto values = static_cast<size_t>(shape.tokens) * static_cast<size_t>(shape.width() / 2);
  std::vector<float> k(values), v(values), scratch(format::encode_scratch_floats(shape, options));
  for (float& x : k) x = noise(random);
  for (float& x : v) x = noise(random);
  std::vector<uint8_t> block(format::block_bytes(shape));
  format::encode_block(shape, options, traits, 0, k.data(), v.data(), format::plain_gemm, scratch.data(), block.data());
  const format::BlockView view = format::view_block(shape, block.data());
  return {view.row_tokens, view.row_tokens + view.rows};
}

TEST(Block, KeepsTheCodeOfTheTextAndNotItsNeighbours) {
  const format::BlockShape shape{128, 1, 64, {.rank = 4, .rows = 11}};
  for (const int at : {1, 2, 52, 53, 60, 64, 115, 117}) {
    Tokens text(" the", at);
    text += Tokens(" F|al|con|-|9|4|2|7|-|6|1");
    if (at < 117) text += Tokens(" the", 117 - at);
    ASSERT_EQ(text.size(), 128);
    const auto traits = traits_of(text);
    ASSERT_EQ(traits.runs.size(), 1u);
    std::vector<int> expected;
    for (int i = 0; i < 11; ++i) expected.push_back(at + i);
    EXPECT_EQ(exact_rows(shape, traits), expected) << "a code at token " << at;
  }
}

TEST(Block, KeepsNoPartOfACodeThatDoesNotFit) {
  const format::BlockShape shape{128, 1, 64, {.rank = 4, .rows = 10}};
  Tokens text(" the", 50);
  text += Tokens(" F|al|con|-|9|4|2|7|-|6|1");
  text += Tokens(" the", 67);
  for (const int row : exact_rows(shape, traits_of(text))) EXPECT_TRUE(row < 50 || row >= 61) << row;
}

}  // namespace
}  // namespace varve::content
