#pragma once
// Scalar codebooks for N(0, 1) coordinates, as integers that fit int8: kLevels<bits>[code] / kSigma<bits> is the level.
// Codes ascend with the value and codes c and 2^bits - 1 - c negate exactly.
//
// Integers, because one byte permute then decodes a code into an operand of an integer dot product. The common scale of
// a set is free (the stored norm absorbs it), so it was chosen, with the set, to minimise the error: exhaustively for
// 2, 4, 5 and 6 bits (dynamic programming over all antisymmetric sets within [-127, 127], over scales in steps of .05);
// for 3 bits the published {13, 40, 71, 114}, within .004 % of the best. Mean squared error on N(0, 1):
//
//   bits   Lloyd-Max    these levels   excess
//   2      .11748185    .11748191      .0001 %
//   3      .03454776    .03454895      .0034 %
//   4      .00950101    .00950622      .055 %
//   5      .00250467    .00251917      .58 %
//   6      .00064424    .00065669      1.93 %   no 64 distinct int8 levels do better
//
// The levels must not be refitted to data: sets with a lower error on real keys gave worse output distributions.

#include <cstdint>

namespace varve::format::tq {

template <int bits>
inline constexpr int8_t kLevels[1 << bits] = {};
template <>
inline constexpr int8_t kLevels<2>[4] = {-120, -36, 36, 120};
template <>
inline constexpr int8_t kLevels<3>[8] = {-114, -71, -40, -13, 13, 40, 71, 114};
template <>
inline constexpr int8_t kLevels<4>[16] = {-104, -79, -62, -48, -36, -25, -15, -5, 5, 15, 25, 36, 48, 62, 79, 104};
template <>
inline constexpr int8_t kLevels<5>[32] = {-97, -80, -69, -60, -53, -47, -41, -36, -31, -26, -22, -18, -14, -10, -6, -2,
                                          2,   6,   10,  14,  18,  22,  26,  31,  36,  41,  47,  53,  60,  69,  80, 97};
template <>
inline constexpr int8_t kLevels<6>[64] = {
    -106, -92, -83, -76, -70, -65, -61, -57, -53, -50, -47, -44, -41, -38, -35, -33, -31, -29, -27, -25, -23, -21,
    -19,  -17, -15, -13, -11, -9,  -7,  -5,  -3,  -1,  1,   3,   5,   7,   9,   11,  13,  15,  17,  19,  21,  23,
    25,   27,  29,  31,  33,  35,  38,  41,  44,  47,  50,  53,  57,  61,  65,  70,  76,  83,  92,  106};

/// What one standard deviation of the coordinates is in integer levels.
template <int bits>
inline constexpr float kSigma = 0;
template <>
inline constexpr float kSigma<2> = 79.451794f;
template <>
inline constexpr float kSigma<3> = 52.942808f;
template <>
inline constexpr float kSigma<4> = 38.142990f;
template <>
inline constexpr float kSigma<5> = 29.726278f;
template <>
inline constexpr float kSigma<6> = 28.388087f;

}  // namespace varve::format::tq
