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
#include "hwy/cache_control.h"
#include "kernels/cpu/simd/unpack-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

/// Heads whose accumulators fit the registers.
constexpr int kPassHeads = 8;
// |sum x w| < 2^31 for the true integers; the bias may wrap on the way and comes off again modulo 2^32.
static_assert(int64_t{kQueryCodeMax} * 127 * format::kMaxHeadDim < int64_t{1} << 31);

/// Vectors of outputs that one pass over r serves: as many as the registers hold beside the products of one head.
template <int kHeads>
constexpr int pass_vectors() {
  if (kWideRegisters) return kHeads <= 4 ? 4 : kHeads <= 6 ? 2 : 1;
  return kHeads == 1 ? 4 : 2;
}

/// sum + a0 b0 + a1 b1 in every 32-bit lane.
HWY_INLINE VI32 add_pairs(hn::Vec<DI16> a, hn::Vec<DI16> b, VI32 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  // In assembly, because GCC 12 regroups such sums, and then copies and spills the accumulators in the inner loop.
  asm("vpaddd %1, %0, %0" : "+x"(sum.raw) : "x"(_mm256_madd_epi16(a.raw, b.raw)));
  return sum;
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

/// Fetches the bytes that the caller reads next into cache, one line at a time between the products of a tile: a burst
/// would fill the core's miss buffers, and the products would wait behind it.
class Fetch {
 public:
  HWY_INLINE Fetch(const Ahead& ahead, int steps)
      : at_(ahead.from), stride_(ahead.bytes / static_cast<size_t>(steps)) {}
  HWY_INLINE void one() {
    hwy::Prefetch(at_);
    at_ += stride_;
  }

 private:
  const uint8_t* at_;  ///< may be null or run past the end: a prefetch does not fault
  size_t stride_;
};

/// kVectors vectors of outputs from `units` on, for kHeads heads.
template <int kHeads, int kVectors, class Finish>
HWY_INLINE void mac_columns(const uint8_t* HWY_RESTRICT units, size_t row_bytes, int r_blocks,
                            const int16_t* HWY_RESTRICT x, int stride, const int32_t* HWY_RESTRICT sums, int output,
                            Fetch& fetch, const Finish& finish) {
  const DI32 di;
  const DI16 di16;
  const DU16 du16;
  const auto low_byte = hn::Set(du16, uint16_t{0xff});
  // A fused multiply-add chain is long where there are few of them: even and odd steps then go apart.
  constexpr bool kSplit = HWY_TARGET == HWY_AVX3_DL && kHeads * kVectors <= 8;
  VI32 even_sum[kHeads][kVectors], odd_sum[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h) {
    const VI32 bias = hn::Set(di, -kBias * sums[h]);
    for (int v = 0; v < kVectors; ++v) {
      even_sum[h][v] = bias;
      odd_sum[h][v] = hn::Zero(di);
    }
  }
  Fetch ahead = fetch;  // in registers
  for (int r = 0; r < r_blocks; ++r) {
    // One half after the other: both at once need more registers than AVX2 has.
    hn::Vec<DI16> half[kVectors];
    const auto load = [&](int v) HWY_ATTR {
      return hn::LoadU(du16, reinterpret_cast<const uint16_t*>(units + v * kBytes));
    };
    for (int v = 0; v < kVectors; ++v) half[v] = hn::BitCast(di16, hn::And(load(v), low_byte));  // steps 0 and 2
    for (int h = 0; h < kHeads; ++h) {
      const auto pair = broadcast_pair(x + h * stride);
      for (int v = 0; v < kVectors; ++v) even_sum[h][v] = add_pairs(half[v], pair, even_sum[h][v]);
    }
    ahead.one();
    for (int v = 0; v < kVectors; ++v) half[v] = hn::BitCast(di16, hn::ShiftRight<8>(load(v)));  // 1 and 3
    for (int h = 0; h < kHeads; ++h) {
      const auto pair = broadcast_pair(x + h * stride + 2);
      for (int v = 0; v < kVectors; ++v) {
        VI32& sum = kSplit ? odd_sum[h][v] : even_sum[h][v];
        sum = add_pairs(half[v], pair, sum);
      }
    }
    units += row_bytes;
    x += 4;
  }
  fetch = ahead;
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      const VI32 sum = kSplit ? hn::Add(even_sum[h][v], odd_sum[h][v]) : even_sum[h][v];
      finish(h, output + v * kLanes, sum);
    }
  }
}

template <int kHeads, class Finish>
HWY_INLINE void mac_heads(const uint8_t* units, int outputs, int r_blocks, const int16_t* x, int stride,
                          const int32_t* sums, const Ahead& ahead, const Finish& finish) {
  constexpr int kVectors = pass_vectors<kHeads>();
  const size_t row_bytes = static_cast<size_t>(outputs) * 4;
  const int passes = outputs / (kVectors * kLanes) + outputs % (kVectors * kLanes) / kLanes;
  Fetch fetch(ahead, passes * r_blocks);
  int o = 0;
  for (; o + kVectors * kLanes <= outputs; o += kVectors * kLanes) {
    mac_columns<kHeads, kVectors>(units + o * 4, row_bytes, r_blocks, x, stride, sums, o, fetch, finish);
  }
  for (; o < outputs; o += kLanes) {
    mac_columns<kHeads, 1>(units + o * 4, row_bytes, r_blocks, x, stride, sums, o, fetch, finish);
  }
}

/// finish(h, o, sum_r x[h][r] * w[r][o ...]) for every output of `heads` heads. units: [r_blocks][outputs][4] bytes. x:
/// [heads] rows of `stride`, at their pair places; sums: [heads] of x.
template <class Finish>
HWY_NOINLINE void mac(int heads, const uint8_t* units, int outputs, int r_blocks, const int16_t* x, int stride,
                      const int32_t* sums, const Ahead& ahead, const Finish& finish) {
  switch (heads) {
    case 1: return mac_heads<1>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 2: return mac_heads<2>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 3: return mac_heads<3>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 4: return mac_heads<4>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 5: return mac_heads<5>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 6: return mac_heads<6>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    case 7: return mac_heads<7>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
    default: return mac_heads<8>(units, outputs, r_blocks, x, stride, sums, ahead, finish);
  }
}

/// Divides a row by its largest magnitude / kQueryCodeMax. A row with NaN or infinity has a NaN step and codes 0; a
/// step that is not a normal number cannot carry 15 bits, and such a row counts as zero.
struct RowScale {
  hn::Vec<DF> step;
  hn::Vec<DF> inverse;
  hn::Mask<DF> usable;

  /// largest: the bits of |x|, [lanes].
  HWY_INLINE explicit RowScale(VI32 largest) {
    const DF df;
    const VF magnitude = hn::BitCast(df, hn::MaxOfLanes(DI32(), largest));
    const VF exact = hn::Div(magnitude, hn::Set(df, float{kQueryCodeMax}));
    const VF infinity = hn::Set(df, std::numeric_limits<float>::infinity());
    const auto finite = hn::Lt(magnitude, infinity);  // not for NaN either
    usable = hn::And(finite, hn::Ge(exact, hn::Set(df, std::numeric_limits<float>::min())));
    step =
        hn::IfThenElse(finite, hn::IfThenElseZero(usable, exact), hn::Set(df, std::numeric_limits<float>::quiet_NaN()));
    inverse = hn::Div(hn::Set(df, 1.0f), exact);
  }

  HWY_INLINE VI32 codes(VF x) const { return hn::NearestInt(hn::IfThenElseZero(usable, hn::Mul(x, inverse))); }
};

/// codes[n] of x[n] at their pair places, n a multiple of 16. Returns their sum.
HWY_INLINE int32_t quantize_pairs(const RowScale& scale, const float* x, int n, int16_t* codes) {
  const DF df;
  const DI32 di;
  const hn::FixedTag<int16_t, 16> d16;
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  const auto order = hn::BitCast(d16, hn::LoadDup128(hn::Repartition<uint8_t, decltype(d16)>(), kOrder));
  VI32 sum = hn::Zero(di);
  for (int i = 0; i < n; i += 16) {
#if HWY_TARGET == HWY_AVX2
    const VI32 low = scale.codes(hn::LoadU(df, x + i)), high = scale.codes(hn::LoadU(df, x + i + 8));
    sum = hn::Add(sum, hn::Add(low, high));
    const auto row = hn::BitCast(d16, hn::VFromD<decltype(d16)>{_mm256_permute4x64_epi64(
                                          _mm256_packs_epi32(low.raw, high.raw), _MM_SHUFFLE(3, 1, 2, 0))});
#else
    const VI32 code = scale.codes(hn::LoadU(df, x + i));
    sum = hn::Add(sum, code);
    const auto row = hn::DemoteTo(d16, code);
#endif
    hn::StoreU(hn::TableLookupBytes(row, order), d16, codes + i);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
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
  const float* norms;  ///< [64]
  const float* step;   ///< [heads]
  float* scores;       ///< [heads][64]

  HWY_INLINE void operator()(int head, int token, VI32 sum) const {
    const VF dot = hn::Mul(hn::ConvertTo(DF(), sum), hn::Set(DF(), step[head]));
    hn::StoreU(hn::Mul(dot, hn::Load(DF(), norms + token)), DF(), scores + head * kTileTokens + token);
  }
};

template <int kBits>
void k_scores(const uint8_t* tile, const QueryGroup& q, float* scores) {
  alignas(64) uint8_t units[kMaxUnpacked];
  alignas(64) float norms[kTileTokens];
  unpack<kBits>(tile, q.head_dim, units);
  load_scales(tile + planar::bytes(q.head_dim, kBits), kUnitScale<kBits>, norms);
  for (int first = 0; first < q.group; first += kPassHeads) {
    mac(std::min(kPassHeads, q.group - first), units, kTileTokens, q.head_dim / 4, q.codes + first * q.head_dim,
        q.head_dim, q.sums + first, first == 0 ? q.ahead : Ahead{},
        StoreScores{norms, q.step + first, scores + first * kTileTokens});
  }
}

struct AddValues {
  int head_dim;
  const float* step;  ///< [heads]
  const float* zero;  ///< [heads], goes to every dim
  float* acc;         ///< [heads][head_dim]

  HWY_INLINE void operator()(int head, int dim, VI32 sum) const {
    float* out = acc + head * head_dim + dim;
    const VF value = hn::MulAdd(hn::ConvertTo(DF(), sum), hn::Set(DF(), step[head]), hn::Set(DF(), zero[head]));
    hn::StoreU(hn::Add(hn::LoadU(DF(), out), value), DF(), out);
  }
};

template <int kBits>
void v_accumulate_ahead(const uint8_t* tile, int head_dim, int group, const float* p, float* acc, const Ahead& ahead) {
  const DF df;
  alignas(64) uint8_t units[kMaxUnpacked];
  alignas(64) float scales[kTileTokens];
  alignas(64) float zeros[kTileTokens];
  alignas(64) float weights[kPassHeads][kTileTokens];
  alignas(64) int16_t codes[kPassHeads * kTileTokens];
  VI32 largest[kPassHeads];
  int32_t sums[kPassHeads];
  float step[kPassHeads];
  float zero[kPassHeads];
  unpack<kBits>(tile, head_dim, units);
  const uint8_t* metadata = tile + planar::bytes(head_dim, kBits);
  load_scales(metadata, kUnitScale<kBits>, scales);
  if constexpr (kBits != 8) load_scales(metadata + kTileTokens * sizeof(uint16_t), 1.0f, zeros);
  for (int first = 0; first < group; first += kPassHeads) {
    const int heads = std::min(kPassHeads, group - first);
    // The heads' reductions are long chains: as separate loops they overlap.
    for (int h = 0; h < heads; ++h) {
      const float* row = p + (first + h) * kTileTokens;
      VF zero_sum = hn::Zero(df);
      largest[h] = hn::Zero(DI32());
      for (int t = 0; t < kTileTokens; t += kLanes) {
        const VF weight = hn::LoadU(df, row + t);
        const VF scaled = hn::Mul(weight, hn::Load(df, scales + t));
        hn::Store(scaled, df, weights[h] + t);
        largest[h] = larger_magnitude(largest[h], scaled);
        if constexpr (kBits != 8) zero_sum = hn::MulAdd(weight, hn::Load(df, zeros + t), zero_sum);
      }
      zero[h] = hn::GetLane(hn::SumOfLanes(df, zero_sum));
    }
    for (int h = 0; h < heads; ++h) {
      const RowScale scale(largest[h]);
      step[h] = hn::GetLane(scale.step);
      sums[h] = quantize_pairs(scale, weights[h], kTileTokens, codes + h * kTileTokens);
    }
    mac(heads, units, head_dim, kTileTokens / 4, codes, kTileTokens, sums, first == 0 ? ahead : Ahead{},
        AddValues{head_dim, step, zero, acc + first * head_dim});
  }
}

template <int kBits>
void v_accumulate(const uint8_t* tile, int head_dim, int group, const float* p, float* acc) {
  v_accumulate_ahead<kBits>(tile, head_dim, group, p, acc, {});
}

void quantize_query(const float* rows, int group, int head_dim, int16_t* codes, float* step, int32_t* sums) {
  for (int g = 0; g < group; ++g) {
    const float* row = rows + g * head_dim;
    VI32 largest = hn::Zero(DI32());
    for (int d = 0; d < head_dim; d += kLanes) largest = larger_magnitude(largest, hn::LoadU(DF(), row + d));
    const RowScale scale(largest);
    step[g] = hn::GetLane(scale.step);
    sums[g] = quantize_pairs(scale, row, head_dim, codes + g * head_dim);
  }
}

template <KCodec kCodec, int kBits>
void set_k(Kernels& table) {
  table.k_scores[static_cast<size_t>(kCodec)] = k_scores<kBits>;
}
template <VCodec kCodec, int kBits>
void set_v(Kernels& table) {
  table.v_accumulate[static_cast<size_t>(kCodec)] = v_accumulate<kBits>;
  table.v_accumulate_ahead[static_cast<size_t>(kCodec)] = v_accumulate_ahead<kBits>;
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
