#include <cstring>

#include "format/row.h"
#include "format/tq/codebook.h"
#include "format/tq/layout.h"

namespace varve::format::tq {
namespace {

/// Nearest levels of y = (row - mean) * inverse, y in units of half a level step (twice the codebook's integers).
/// codes, levels: [n]. A value half way between two levels takes the outer one; 0 takes the positive inner one.
template <int bits>
void quantize(const float* row, int n, float mean, float inverse, uint8_t* codes, int8_t* levels) {
  constexpr int kHalf = 1 << (bits - 1);
  constexpr const int8_t* kPositive = kLevels<bits> + kHalf;
  // The midpoint of two integer levels is half an integer, so y >= midpoint is floor(2 |y|) >= sum of the two, exactly.
  // That makes all comparisons bytewise, which is many per instruction.
  uint8_t magnitude[kMaxHeadDim], steps[kMaxHeadDim], level[kMaxHeadDim];
  for (int d = 0; d < n; ++d) {
    const float y = std::fabs((row[d] - mean) * inverse);
    magnitude[d] = static_cast<uint8_t>(static_cast<int>(y < 255.0f ? y : 255.0f));
  }
  std::memset(steps, 0, sizeof(steps));
  std::memset(level, kPositive[0], sizeof(level));
  for (int j = 0; j + 1 < kHalf; ++j) {
    const uint8_t threshold = static_cast<uint8_t>(kPositive[j] + kPositive[j + 1]);
    const uint8_t rise = static_cast<uint8_t>(kPositive[j + 1] - kPositive[j]);
    for (int d = 0; d < n; ++d) {
      const uint8_t above = magnitude[d] >= threshold ? 0xff : 0;
      steps[d] = static_cast<uint8_t>(steps[d] - above);
      level[d] = static_cast<uint8_t>(level[d] + (above & rise));
    }
  }
  for (int d = 0; d < n; ++d) {
    const bool negative = row[d] - mean < 0;
    codes[d] = static_cast<uint8_t>(negative ? kHalf - 1 - steps[d] : kHalf + steps[d]);
    levels[d] = static_cast<int8_t>(negative ? -level[d] : level[d]);
  }
}

/// Returns the stored norm.
template <int bits>
half_t encode_k_row(const float* row, int n, const EncodeOptions& options, uint8_t* codes) {
  const float energy = lane_sum(n, [&](int d) { return row[d] * row[d]; });
  const bool lost = !std::isfinite(energy);  // NaN, infinity, or past anything f16 can hold
  if (lost || energy < kVanishing) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return lost ? kHalfNan : half_t{0};
  }
  const float sigma = std::sqrt(energy / static_cast<float>(n));
  int8_t levels[kMaxHeadDim];
  quantize<bits>(row, n, 0.0f, 2.0f * kSigma<bits> / sigma, codes, levels);
  float unit;  // of one level
  if (options.inner_product_norm) {
    unit = energy / lane_sum(n, [&](int d) { return row[d] * static_cast<float>(levels[d]); });
  } else {
    const float coded = lane_sum(n, [&](int d) { return static_cast<float>(levels[d] * levels[d]); });
    unit = std::sqrt(energy / coded);
  }
  return store_scale(unit / kLevelUnit);
}

struct Affine {
  half_t scale, zero;
};

template <int bits>
Affine encode_v_row(const float* row, int n, uint8_t* codes) {
  const float count = static_cast<float>(n);
  const float mean = lane_sum(n, [&](int d) { return row[d]; }) / count;
  const float energy = lane_sum(n, [&](int d) { return (row[d] - mean) * (row[d] - mean); });
  if (!std::isfinite(energy)) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return {kHalfNan, 0};
  }
  if (energy < kVanishing) {
    std::memset(codes, 0, static_cast<size_t>(n));
    const half_t zero = store_scale(mean);
    return {zero == kHalfNan ? kHalfNan : half_t{0}, zero};
  }
  int8_t levels[kMaxHeadDim];
  quantize<bits>(row, n, mean, 2.0f * kSigma<bits> / std::sqrt(energy / count), codes, levels);
  // Least squares of row ~ zero + unit * level. Sums of integer levels are exact.
  const float sum = lane_sum(n, [&](int d) { return static_cast<float>(levels[d]); });
  const float squares = lane_sum(n, [&](int d) { return static_cast<float>(levels[d] * levels[d]); });
  const float cross = lane_sum(n, [&](int d) { return static_cast<float>(levels[d]) * (row[d] - mean); });
  const float spread = squares - sum * sum / count;
  const half_t scale = store_scale(spread > 0 ? cross / spread / kLevelUnit : 0.0f);
  // The zero is fitted to the scale as it is stored, so the row's mean survives the scale's rounding.
  const half_t zero = store_scale(mean - half_to_float(scale) * kLevelUnit * (sum / count));
  return {zero == kHalfNan ? kHalfNan : scale, zero};
}

}  // namespace

template <int bits>
void encode_k(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile) {
  uint8_t codes[kMaxHeadDim * planar::kUnit], row_codes[kMaxHeadDim];
  half_t norms[kTileTokens];
  for (int t = 0; t < kTileTokens; ++t) {
    norms[t] = encode_k_row<bits>(rows + t * head_dim, head_dim, options, row_codes);
    planar::place_k(row_codes, head_dim, t, codes);
  }
  planar::pack<bits>(codes, head_dim, tile);
  std::memcpy(tile + planar::bytes(head_dim, bits), norms, sizeof(norms));
}

template <int bits>
void encode_v(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  uint8_t codes[kMaxHeadDim * planar::kUnit], row_codes[4][kMaxHeadDim];
  half_t scales[kTileTokens], zeros[kTileTokens];
  for (int t = 0; t < kTileTokens; t += 4) {
    for (int i = 0; i < 4; ++i) {
      const Affine fit = encode_v_row<bits>(rows + (t + i) * head_dim, head_dim, row_codes[i]);
      scales[t + i] = fit.scale;
      zeros[t + i] = fit.zero;
    }
    planar::place_v(row_codes[0], kMaxHeadDim, head_dim, t, codes);
  }
  planar::pack<bits>(codes, head_dim, tile);
  std::memcpy(tile + planar::bytes(head_dim, bits), scales, sizeof(scales));
  std::memcpy(tile + planar::bytes(head_dim, bits) + sizeof(scales), zeros, sizeof(zeros));
}

template void encode_k<6>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_k<5>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_k<4>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_k<3>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_k<2>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_v<4>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_v<3>(const float*, int, const EncodeOptions&, uint8_t*);
template void encode_v<2>(const float*, int, const EncodeOptions&, uint8_t*);

}  // namespace varve::format::tq
