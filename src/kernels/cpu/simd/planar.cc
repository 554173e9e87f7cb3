// Scores and weighted sums over planar integer tiles. Both are out[h][o] = sum_r x[h][r] * w[r][o]: w are the tile's
// integers (K: r = dim, o = token; V: r = token, o = dim), x is a 16-bit query or 16-bit probabilities with V's
// per-token scale folded in. Products accumulate exactly in int32, so the only error is the rounding of x to 15 bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/planar.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <limits>

#include "format/tq/layout.h"
#include "kernels/cpu/simd/unpack-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

/// Heads whose accumulators fit the registers.
constexpr int kPassHeads = 8;
/// Distance of two heads' x.
constexpr int kStride = format::kMaxHeadDim;
// |sum x w| < 2^31 for the true integers; the bias may wrap on the way and comes off again modulo 2^32.
static_assert(int64_t{kQueryCodeMax} * 127 * format::kMaxHeadDim < int64_t{1} << 31);

/// Vectors of outputs that one pass over r serves: as many as the registers hold beside the products of one head.
template <int kHeads>
constexpr int pass_vectors() {
  if (kWideRegisters) return kHeads <= 4 ? 4 : kHeads <= 6 ? 2 : 1;
  return kHeads == 1 ? 4 : kHeads <= 3 ? 2 : 1;
}

/// sum + a0 b0 + a1 b1 in every 32-bit lane.
HWY_INLINE VI32 add_pairs(hn::Vec<DI16> a, hn::Vec<DI16> b, VI32 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#else
  VI32 unused = hn::Zero(DI32());
  return hn::ReorderWidenMulAccumulate(DI32(), a, b, sum, unused);
#endif
}

HWY_INLINE hn::Vec<DI16> broadcast_pair(const int16_t* x) {
  int32_t pair;
  hwy::CopyBytes<sizeof(pair)>(x, &pair);
  return hn::BitCast(DI16(), hn::Set(DI32(), pair));
}

/// kVectors vectors of outputs from `units` on, for kHeads heads.
template <int kHeads, int kVectors, class Finish>
HWY_INLINE void mac_columns(const uint8_t* HWY_RESTRICT units, size_t row_bytes, int r_blocks,
                            const int16_t* HWY_RESTRICT x, int output, const Finish& finish) {
  const DI32 di;
  const DI16 di16;
  const DU16 du16;
  const auto low_byte = hn::Set(du16, uint16_t{0xff});
  // A fused multiply-add chain is long where there are few of them: even and odd steps then go apart.
  constexpr bool kSplit = HWY_TARGET == HWY_AVX3_DL && kHeads * kVectors <= 8;
  VI32 even_sum[kHeads][kVectors], odd_sum[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) even_sum[h][v] = odd_sum[h][v] = hn::Zero(di);
  }
  for (int r = 0; r < r_blocks; ++r) {
    hn::Vec<DI16> even[kVectors], odd[kVectors];  // steps 0 and 2, 1 and 3
    for (int v = 0; v < kVectors; ++v) {
      const auto bytes = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(units + v * kBytes));
      even[v] = hn::BitCast(di16, hn::And(bytes, low_byte));
      odd[v] = hn::BitCast(di16, hn::ShiftRight<8>(bytes));
    }
    for (int h = 0; h < kHeads; ++h) {
      const auto x_even = broadcast_pair(x + h * kStride), x_odd = broadcast_pair(x + h * kStride + 2);
      for (int v = 0; v < kVectors; ++v) {
        even_sum[h][v] = add_pairs(even[v], x_even, even_sum[h][v]);
        VI32& sum = kSplit ? odd_sum[h][v] : even_sum[h][v];
        sum = add_pairs(odd[v], x_odd, sum);
      }
    }
    units += row_bytes;
    x += 4;
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      const VI32 sum = kSplit ? hn::Add(even_sum[h][v], odd_sum[h][v]) : even_sum[h][v];
      finish(h, output + v * kLanes, sum);
    }
  }
}

template <int kHeads, class Finish>
HWY_INLINE void mac_heads(const uint8_t* units, int outputs, int r_blocks, const int16_t* x, const Finish& finish) {
  constexpr int kVectors = pass_vectors<kHeads>();
  const size_t row_bytes = static_cast<size_t>(outputs) * 4;
  int o = 0;
  for (; o + kVectors * kLanes <= outputs; o += kVectors * kLanes) {
    mac_columns<kHeads, kVectors>(units + o * 4, row_bytes, r_blocks, x, o, finish);
  }
  for (; o < outputs; o += kLanes) mac_columns<kHeads, 1>(units + o * 4, row_bytes, r_blocks, x, o, finish);
}

/// finish(h, o, sums of outputs o ... of head h, biased by kBias * sum_r x[h][r]) for every output of `heads` heads.
/// units: [r_blocks][outputs][4] biased bytes. x: [heads] rows of kStride, in pair order.
template <class Finish>
HWY_NOINLINE void mac(int heads, const uint8_t* units, int outputs, int r_blocks, const int16_t* x,
                      const Finish& finish) {
  switch (heads) {
    case 1: return mac_heads<1>(units, outputs, r_blocks, x, finish);
    case 2: return mac_heads<2>(units, outputs, r_blocks, x, finish);
    case 3: return mac_heads<3>(units, outputs, r_blocks, x, finish);
    case 4: return mac_heads<4>(units, outputs, r_blocks, x, finish);
    case 5: return mac_heads<5>(units, outputs, r_blocks, x, finish);
    case 6: return mac_heads<6>(units, outputs, r_blocks, x, finish);
    case 7: return mac_heads<7>(units, outputs, r_blocks, x, finish);
    default: return mac_heads<8>(units, outputs, r_blocks, x, finish);
  }
}

/// Copies x[n] so that steps (0, 2) and (1, 3) of each four are neighbours. n is a multiple of 16. Returns kBias * sum.
HWY_INLINE int32_t pair_order(const int16_t* x, int n, int16_t* pairs) {
  const hn::FixedTag<int16_t, 8> d;
  const hn::FixedTag<int32_t, 4> d32;
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  const auto order = hn::BitCast(d, hn::Load(DU8x16(), kOrder));
  auto sum = hn::Zero(d32);
  for (int i = 0; i < n; i += 8) {
    const auto v = hn::LoadU(d, x + i);
    auto unused = hn::Zero(d32);
    sum = hn::ReorderWidenMulAccumulate(d32, v, hn::Set(d, int16_t{1}), sum, unused);
    hn::Store(hn::TableLookupBytes(v, order), d, pairs + i);
  }
  return hn::GetLane(hn::SumOfLanes(d32, sum)) * kBias;
}

/// f16 metadata of a tile's tokens times `factor`.
HWY_INLINE void load_scales(const uint8_t* metadata, float factor, float* scales) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(metadata);
  for (int t = 0; t < kTileTokens; t += kLanes) {
    hn::Store(hn::Mul(load_half(halves + t), hn::Set(DF(), factor)), DF(), scales + t);
  }
}

template <int kBits>
constexpr float kUnitScale = kBits == 8 ? 1.0f : format::tq::kLevelUnit;

struct StoreScores {
  const float* norms;   ///< [64]
  const float* step;    ///< [heads]
  const int32_t* bias;  ///< [heads]
  float* scores;        ///< [heads][64]

  HWY_INLINE void operator()(int head, int token, VI32 sum) const {
    const VF exact = hn::ConvertTo(DF(), hn::Sub(sum, hn::Set(DI32(), bias[head])));
    const VF dot = hn::Mul(exact, hn::Set(DF(), step[head]));
    hn::StoreU(hn::Mul(dot, hn::Load(DF(), norms + token)), DF(), scores + head * kTileTokens + token);
  }
};

template <int kBits>
void k_scores(const uint8_t* tile, const QueryGroup& q, float* scores) {
  alignas(64) uint8_t units[kMaxUnpacked];
  alignas(64) float norms[kTileTokens];
  alignas(64) int16_t x[kPassHeads * kStride];
  int32_t bias[kPassHeads];
  unpack<kBits>(tile, q.head_dim, units);
  load_scales(tile + planar::bytes(q.head_dim, kBits), kUnitScale<kBits>, norms);
  for (int first = 0; first < q.group; first += kPassHeads) {
    const int heads = std::min(kPassHeads, q.group - first);
    for (int h = 0; h < heads; ++h) {
      bias[h] = pair_order(q.codes + (first + h) * q.head_dim, q.head_dim, x + h * kStride);
    }
    mac(heads, units, kTileTokens, q.head_dim / 4, x,
        StoreScores{norms, q.step + first, bias, scores + first * kTileTokens});
  }
}

struct AddValues {
  int head_dim;
  const float* step;    ///< [heads]
  const float* zero;    ///< [heads], goes to every dim
  const int32_t* bias;  ///< [heads]
  float* acc;           ///< [heads][head_dim]

  HWY_INLINE void operator()(int head, int dim, VI32 sum) const {
    float* out = acc + head * head_dim + dim;
    const VF exact = hn::ConvertTo(DF(), hn::Sub(sum, hn::Set(DI32(), bias[head])));
    const VF value = hn::MulAdd(exact, hn::Set(DF(), step[head]), hn::Set(DF(), zero[head]));
    hn::StoreU(hn::Add(hn::LoadU(DF(), out), value), DF(), out);
  }
};

/// codes[n] of x[n], n a multiple of 16: x = step * code. NaN or infinity anywhere: step NaN, codes 0.
HWY_INLINE float quantize_row(const float* x, int n, int16_t* codes) {
  const DF df;
  const hn::Rebind<int16_t, DF> d16;
  const int32_t bits = absmax_bits(x, n);
  float largest;
  hwy::CopyBytes<sizeof(largest)>(&bits, &largest);
  float step = largest / kQueryCodeMax;
  // A step that is not a normal number cannot carry 15 bits; such a row counts as zero.
  if (step < std::numeric_limits<float>::min()) step = 0;
  const bool finite = bits < 0x7f800000;
  const float inverse = finite && step > 0 ? 1.0f / step : 0.0f;
  for (int i = 0; i < n; i += kLanes) {
    const VF scaled = hn::Mul(hn::LoadU(df, x + i), hn::Set(df, inverse));
    const VF known = inverse > 0 ? scaled : hn::Zero(df);
    hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(known)), d16, codes + i);
  }
  return finite ? step : std::numeric_limits<float>::quiet_NaN();
}

template <int kBits>
void v_accumulate(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  const DF df;
  alignas(64) uint8_t units[kMaxUnpacked];
  alignas(64) float scales[kTileTokens];
  alignas(64) float zeros[kTileTokens];
  alignas(64) float weights[kTileTokens];
  alignas(64) int16_t codes[kTileTokens];
  alignas(64) int16_t x[kPassHeads * kStride];
  int32_t bias[kPassHeads];
  float step[kPassHeads];
  float zero[kPassHeads];
  unpack<kBits>(tile, head_dim, units);
  const uint8_t* metadata = tile + planar::bytes(head_dim, kBits);
  load_scales(metadata, kUnitScale<kBits>, scales);
  if constexpr (kBits != 8) load_scales(metadata + kTileTokens * sizeof(uint16_t), 1.0f, zeros);
  for (int first = 0; first < group; first += kPassHeads) {
    const int heads = std::min(kPassHeads, group - first);
    for (int h = 0; h < heads; ++h) {
      const float* row = p + (first + h) * kTileTokens;
      VF zero_sum = hn::Zero(df);
      for (int t = 0; t < kTileTokens; t += kLanes) {
        const VF weight = hn::LoadU(df, row + t);
        hn::Store(hn::Mul(weight, hn::Load(df, scales + t)), df, weights + t);
        if constexpr (kBits != 8) zero_sum = hn::MulAdd(weight, hn::Load(df, zeros + t), zero_sum);
      }
      zero[h] = hn::GetLane(hn::SumOfLanes(df, zero_sum));
      step[h] = quantize_row(weights, kTileTokens, codes);
      bias[h] = pair_order(codes, kTileTokens, x + h * kStride);
    }
    mac(heads, units, head_dim, kTileTokens / 4, x, AddValues{head_dim, step, zero, bias, acc + first * head_dim});
  }
}

void quantize_query(const float* rows, int group, int head_dim, int16_t* codes, float* step) {
  for (int g = 0; g < group; ++g) step[g] = quantize_row(rows + g * head_dim, head_dim, codes + g * head_dim);
}

template <KCodec kCodec, int kBits>
void set_k(Kernels& table) {
  table.k_scores[static_cast<size_t>(kCodec)] = k_scores<kBits>;
}
template <VCodec kCodec, int kBits>
void set_v(Kernels& table) {
  table.v_accumulate[static_cast<size_t>(kCodec)] = v_accumulate<kBits>;
}

}  // namespace

void fill_planar(Kernels& table) {
  set_k<KCodec::kInt8, 8>(table);
  set_k<KCodec::kTq6, 6>(table);
  set_k<KCodec::kTq5, 5>(table);
  set_k<KCodec::kTq4, 4>(table);
  set_k<KCodec::kTq3, 3>(table);
  set_k<KCodec::kTq2, 2>(table);
  set_v<VCodec::kInt8, 8>(table);
  set_v<VCodec::kTq4, 4>(table);
  set_v<VCodec::kTq3, 3>(table);
  set_v<VCodec::kTq2, 2>(table);
  table.quantize_query = quantize_query;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
