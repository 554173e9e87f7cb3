#pragma once
// The CPU kernel table: raw pointers in, raw pointers out, no pages, no models. One table per instruction set; the
// best one that the machine has is chosen once, and any can be forced (`--kernel`).
//
// Encoders, decoders and the rotation of every table equal the scalar references of src/format bit for bit (NaN
// payloads apart), so a page does not depend on the machine that sealed it. Scores and weighted sums of the integer
// codecs use 15-bit queries and probabilities and exact integer sums: a whole attention output is within 1e-3 of double
// arithmetic over the decoded rows (docs/adr/0006).
//
// head_dim is one of format::kHeadDims. Tiles are aligned to 2 bytes at least, a cache line is best. NaN and infinity
// follow IEEE arithmetic: a lost key loses its scores, a lost value row with any weight, zero included (0 * NaN), loses
// the sum, a lost query loses its head. No kernel writes outside its output.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "format/codec.h"
#include "varve/status.h"

namespace varve::kernels {

using format::KCodec;
using format::kTileTokens;
using format::VCodec;

inline constexpr size_t kKCodecs = static_cast<size_t>(KCodec::kCount);
inline constexpr size_t kVCodecs = static_cast<size_t>(VCodec::kCount);

/// Query heads that share one KV head.
inline constexpr int kMaxGroup = 16;
/// Largest magnitude of a quantised query.
inline constexpr int kQueryCodeMax = 32767;

/// Where dim d's code stands in a row of codes: steps 0 and 2, 1 and 3 of each four are neighbours, as the products of
/// 16-bit pairs take them (the even and the odd bytes of a unit of format/planar.h).
constexpr int pair_place(int d) { return (d & ~3) | (d & 1) << 1 | (d & 2) >> 1; }

/// Memory that the caller reads next. A kernel may fetch it into cache while it computes.
struct Ahead {
  const uint8_t* from = nullptr;
  size_t bytes = 0;
};

/// The query heads of one GQA group, prepared once per row and layer.
struct QueryGroup {
  int group = 0;  ///< query heads that share the KV head, 1 to kMaxGroup
  int head_dim = 0;
  const float* rows = nullptr;     ///< [group][head_dim] fp32 in the codec's frame, attention scale folded in
  /// [group][head_dim]: rows[g][d] = step[g] * codes[g][pair_place(d)], |codes| <= 32767
  const int16_t* codes = nullptr;
  const float* step = nullptr;    ///< [group]
  const int32_t* sums = nullptr;  ///< [group] of the codes
  Ahead ahead;
};

/// Powers of a curve's polynomial part, each for the even and the odd half.
inline constexpr int kCurvePowers = 4;
/// Pairs of a curve with the zeros behind them.
constexpr int curve_padded(int pairs) { return (pairs + 15) / 16 * 16; }
/// Floats of one head's terms: a of every pair and zeros, b likewise, the constant and 15 that nobody reads.
constexpr int curve_term_floats(int pairs) { return 2 * curve_padded(pairs) + 16; }

/// What a rotary centre adds to the scores of one tile: sum over pairs p of a_p cos(o theta_p) + b_p sin(o theta_p), and a
/// constant, o counted from the start of the page. Counted from the middle of the tile it is an even part (the turned
/// a) plus an odd one (the turned b). Pairs from `fast` on turn so little within a tile that polynomials give their
/// part: x^2k and x^(2k+1), x = distance from the middle / 31.5, k < kCurvePowers.
struct CurveTable {
  int pairs = 0;
  int fast = 0;                ///< multiple of 16, at most curve_padded(pairs)
  const float* cos = nullptr;  ///< [padded]: of the angle from the page's start to the middle of the tile
  const float* sin = nullptr;
  const float* even = nullptr;         ///< [fast + kCurvePowers][32]: cos(theta_p x), then the powers, x = 1/2, 3/2 ...
  const float* odd = nullptr;          ///< the same with sin
  const float* even_powers = nullptr;  ///< [kCurvePowers][padded - fast]: what a pair gives to each power
  const float* odd_powers = nullptr;
};

struct Kernels {
  const char* name;  ///< "generic", "avx2", "avx512" ...

  /// scores[g * 64 + t] = dot(q_g, k_t) over one tile, t in [0, 64), norms applied, centre NOT added. Integer codecs
  /// read q.codes and q.step, f16 and fp8 read q.rows.
  using KScores = void (*)(const uint8_t* tile, const QueryGroup& q, float* scores);
  /// acc[g * head_dim + d] += sum_t p[g * 64 + t] * v[t][d] over one tile. p: [group][64] fp32, zero where masked.
  using VAccumulate = void (*)(const uint8_t* tile, int head_dim, int group, const float* p, float* acc);
  using VAccumulateAhead = void (*)(const uint8_t* tile, int head_dim, int group, const float* p, float* acc,
                                    const Ahead& ahead);
  /// rows: [64][head_dim] fp32 in the codec's frame.
  using Decode = void (*)(const uint8_t* tile, int head_dim, float* rows);
  using Encode = void (*)(const float* rows, int head_dim, const format::EncodeOptions& options, uint8_t* tile);

  std::array<KScores, kKCodecs> k_scores;
  std::array<VAccumulate, kVCodecs> v_accumulate;
  std::array<VAccumulateAhead, kVCodecs> v_accumulate_ahead;  ///< the same sums; null where nothing is fetched ahead
  std::array<Decode, kKCodecs> k_decode;
  std::array<Decode, kVCodecs> v_decode;
  std::array<Encode, kKCodecs> k_encode;
  std::array<Encode, kVCodecs> v_encode;

  /// codes, step and sums of a QueryGroup from its rows. step is absmax / kQueryCodeMax; NaN, with the codes 0, for a row
  /// that holds NaN or infinity; 0 where it would not be a normal number.
  void (*quantize_query)(const float* rows, int group, int head_dim, int16_t* codes, float* step, int32_t* sums);
  /// y = H.S.x on n rows in place (format::Rotation::forward / inverse).
  void (*rotate)(float* rows, int n, int head_dim, const float* signs);
  void (*unrotate)(float* rows, int n, int head_dim, const float* signs);
  /// Scores of `n` f16 rows in the plain frame: scores[g * stride + t] for t in [0, n). k: [n][head_dim] f16, read once
  /// for all heads.
  void (*f16_scores)(const uint16_t* k, int n, const QueryGroup& q, int stride, float* scores);
  /// acc[g * head_dim + d] += sum_t p[g * stride + t] * v[t][d], t in [0, n). v: [n][head_dim] f16.
  void (*f16_accumulate)(const uint16_t* v, int n, int head_dim, int group, int stride, const float* p, float* acc);
  /// scores[t] <- exp(scores[t] - max) for t in [0, n), returns their sum; -inf gives 0, NaN stays. The relative error
  /// of each is at most 2e-7 for differences in [-87.3, 88]; below them 0, above them infinity may stand for the value.
  float (*exp_sum)(float* scores, int n, float max);
  /// The largest of x[n]; NaN is passed over, -infinity when nothing is left.
  float (*max)(const float* x, int n);
  /// c[m][n] (+)= a[m][k] . b[k][n], fp32 row-major with leading dimensions; accumulate says whether c is added to. Any
  /// m, n, k; fastest where n is a multiple of 16.
  void (*gemm)(int m, int n, int k, const float* a, int lda, const float* b, int ldb, float* c, int ldc,
               bool accumulate);
  /// The terms of one head's curve for one page. q, u: [head_dim], plain frame. neox: pair p is dims (p, p + pairs), else
  /// (2p, 2p + 1); later dims go to the constant. terms: [curve_term_floats(pairs)].
  void (*curve_terms)(const float* q, const float* u, int head_dim, int pairs, bool neox, float* terms);
  /// scores[g][t] += the curve of head g, t in [0, 64). terms: [group][curve_term_floats(pairs)].
  void (*add_curve)(const CurveTable& table, int group, const float* terms, float* scores);
  /// to[c * to_stride + r] = from[r * from_stride + c], r in [0, rows), c in [0, columns).
  void (*transpose)(int rows, int columns, const float* from, int from_stride, float* to, int to_stride);
  /// Round to nearest even, as base/half.h.
  void (*f32_to_f16)(const float* src, uint16_t* dst, size_t n);
  void (*f16_to_f32)(const uint16_t* src, float* dst, size_t n);
  void (*i8_to_f32)(const int8_t* src, float* dst, size_t n);
  /// Turns n pairs (x[t], y[t]) by the angle a + b[t], given cos and sin of a (c0, s0) and of each b (c, s).
  void (*turn)(float* x, float* y, int n, float c0, float s0, const float* c, const float* s);
};

/// Every table this machine can run, best first; the last is always "generic", the scalar reference.
const std::vector<const Kernels*>& available();
/// `name` empty: the best. Unknown or not runnable here: an error that says what is required and what is there.
Result<const Kernels*> choose(std::string_view name);

}  // namespace varve::kernels
