// fp32 rows to tiles. Every sum runs in the order of the scalar references of src/format (16 lanes, then halves, no
// fused multiply-add), so tiles are equal bit for bit: what a page holds does not depend on the machine that sealed it.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/encode.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <cmath>
#include <cstring>

#include "format/fp8/e4m3.h"
#include "format/planar.h"
#include "format/row.h"
#include "format/tq/codebook.h"
#include "format/tq/layout.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

namespace planar = format::planar;
using format::EncodeOptions;
using format::kHalfNan;

/// Codes of a row, padded so that whole vectors may be read and written.
constexpr int kMaxRow = format::kMaxHeadDim;
static_assert(kMaxRow % kBytes == 0);

/// format::lane_sum: sum_d f(d) over [0, n), f giving the vector at d.
template <class F>
HWY_INLINE float lane_sum(int n, const F& f) {
  const DF df;
  constexpr int kVectors = format::kLanes / kLanes;
  VF sum[kVectors];
  for (VF& s : sum) s = hn::Zero(df);
  for (int d = 0; d < n; d += format::kLanes) {
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Add(sum[v], f(d + v * kLanes));
  }
  const hn::FixedTag<float, 8> d8;
  const DF4 d4;
#if HWY_TARGET == HWY_AVX2
  const auto eight = hn::Add(sum[0], sum[1]);
#else
  const auto eight = hn::Add(hn::LowerHalf(d8, sum[0]), hn::UpperHalf(d8, sum[0]));
#endif
  const VF4 four = hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
  const VF4 two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}

/// The largest magnitude of a row, NaN or infinity where it holds one.
HWY_INLINE float absmax(const float* row, int n) {
  const int32_t bits = absmax_bits(row, n);
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  return largest;
}

/// The magnitude steps of a codebook: above how many thresholds |y| lies, y in half level steps (format/tq/encode.cc).
template <int kBits>
HWY_INLINE VU8 count_steps(VU8 magnitude) {
  constexpr int kHalf = 1 << (kBits - 1);
  constexpr const int8_t* kPositive = format::tq::kLevels<kBits> + kHalf;
  const DU8 d8;
  VU8 steps = hn::Zero(d8);
  for (int j = 0; j + 1 < kHalf; ++j) {
    const VU8 threshold = hn::Set(d8, static_cast<uint8_t>(kPositive[j] + kPositive[j + 1]));
    const auto above = hn::Eq(hn::Max(magnitude, threshold), magnitude);
    steps = hn::Sub(steps, hn::VecFromMask(d8, above));
  }
  return steps;
}

/// level[step] of the positive half of a codebook.
template <int kBits>
HWY_INLINE VU8 positive_level(VU8 steps) {
  const DU8 d8;
  const DI8 di8;
  const uint8_t* positive = reinterpret_cast<const uint8_t*>(format::tq::kLevels<kBits> + (1 << (kBits - 1)));
  alignas(16) uint8_t table[32] = {};
  std::memcpy(table, positive, size_t{1} << (kBits - 1));
  const VU8 low = hn::TableLookupBytes(hn::LoadDup128(d8, table), steps);
  if constexpr (kBits < 6) return low;
  const VU8 high = hn::TableLookupBytes(hn::LoadDup128(d8, table + 16), hn::And(steps, hn::Set(d8, uint8_t{15})));
  const auto upper = hn::Gt(hn::BitCast(di8, steps), hn::Set(di8, int8_t{15}));
  return hn::IfThenElse(hn::RebindMask(d8, upper), high, low);
}

/// Nearest levels of (row - mean) * inverse, the product in half level steps. codes, levels: [kMaxRow].
template <int kBits>
HWY_INLINE void quantize(const float* row, int n, float mean, float inverse, uint8_t* codes, int8_t* levels) {
  const DF df;
  const DI32 di;
  const DU8 d8;
  const DI8 di8;
  const hn::Rebind<uint8_t, DF> d_magnitude;
  const hn::Rebind<int8_t, DF> d_sign;
  alignas(64) uint8_t magnitude[kMaxRow] = {};
  alignas(64) int8_t sign[kMaxRow] = {};  // -1 where negative
  for (int d = 0; d < n; d += kLanes) {
    const VF centred = hn::Sub(hn::LoadU(df, row + d), hn::Set(df, mean));
    const VF y = hn::Min(hn::Abs(hn::Mul(centred, hn::Set(df, inverse))), hn::Set(df, 255.0f));
    hn::StoreU(hn::DemoteTo(d_magnitude, hn::ConvertTo(di, y)), d_magnitude, magnitude + d);
    const auto negative = hn::VecFromMask(df, hn::Lt(centred, hn::Zero(df)));
    hn::StoreU(hn::DemoteTo(d_sign, hn::BitCast(di, negative)), d_sign, sign + d);
  }
  for (int d = 0; d < n; d += kBytes) {
    const VU8 negative = hn::BitCast(d8, hn::Load(di8, sign + d));
    const VU8 steps = count_steps<kBits>(hn::Load(d8, magnitude + d));
    const VU8 level = positive_level<kBits>(steps);
    const VU8 code = hn::Add(steps, hn::Set(d8, uint8_t{1 << (kBits - 1)}));
    constexpr uint8_t kMask = (1 << kBits) - 1;
    hn::Store(hn::Xor(code, hn::And(negative, hn::Set(d8, kMask))), d8, codes + d);
    hn::Store(hn::BitCast(di8, hn::Sub(hn::Xor(level, negative), negative)), di8, levels + d);
  }
}

/// Codes of one row and the metadata that goes with them.
struct Metadata {
  half_t scale = 0;
  half_t zero = 0;
};

HWY_INLINE Metadata zero_codes(int n, uint8_t* codes, Metadata metadata) {
  std::memset(codes, 0, static_cast<size_t>(n));
  return metadata;
}

template <int kBits>
HWY_INLINE Metadata encode_tq_k_row(const float* row, int n, const EncodeOptions& options, uint8_t* codes) {
  const DF df;
  const float energy = lane_sum(n, [&](int d) HWY_ATTR {
    const VF x = hn::LoadU(df, row + d);
    return hn::Mul(x, x);
  });
  if (!std::isfinite(energy)) return zero_codes(n, codes, {kHalfNan, 0});
  if (energy < format::tq::kVanishing) return zero_codes(n, codes, {0, 0});
  const float sigma = std::sqrt(energy / static_cast<float>(n));
  alignas(64) int8_t levels[kMaxRow];
  quantize<kBits>(row, n, 0.0f, 2.0f * format::tq::kSigma<kBits> / sigma, codes, levels);
  float unit;  // of one level
  if (options.inner_product_norm) {
    const float product =
        lane_sum(n, [&](int d) HWY_ATTR { return hn::Mul(hn::LoadU(df, row + d), load_bytes(levels + d)); });
    unit = energy / product;
  } else {
    const float coded = lane_sum(n, [&](int d) HWY_ATTR {
      const VF level = load_bytes(levels + d);
      return hn::Mul(level, level);
    });
    unit = std::sqrt(energy / coded);
  }
  return {format::store_scale(unit / format::tq::kLevelUnit), 0};
}

template <int kBits>
HWY_INLINE Metadata encode_tq_v_row(const float* row, int n, uint8_t* codes) {
  const DF df;
  const float count = static_cast<float>(n);
  const float mean = lane_sum(n, [&](int d) HWY_ATTR { return hn::LoadU(df, row + d); }) / count;
  const VF mean_vector = hn::Set(df, mean);
  const float energy = lane_sum(n, [&](int d) HWY_ATTR {
    const VF centred = hn::Sub(hn::LoadU(df, row + d), mean_vector);
    return hn::Mul(centred, centred);
  });
  if (!std::isfinite(energy)) return zero_codes(n, codes, {kHalfNan, 0});
  if (energy < format::tq::kVanishing) {
    const half_t zero = format::store_scale(mean);
    return zero_codes(n, codes, {zero == kHalfNan ? kHalfNan : half_t{0}, zero});
  }
  alignas(64) int8_t levels[kMaxRow];
  quantize<kBits>(row, n, mean, 2.0f * format::tq::kSigma<kBits> / std::sqrt(energy / count), codes, levels);
  const float sum = lane_sum(n, [&](int d) HWY_ATTR { return load_bytes(levels + d); });
  const float squares = lane_sum(n, [&](int d) HWY_ATTR {
    const VF level = load_bytes(levels + d);
    return hn::Mul(level, level);
  });
  const float cross = lane_sum(
      n, [&](int d) HWY_ATTR { return hn::Mul(load_bytes(levels + d), hn::Sub(hn::LoadU(df, row + d), mean_vector)); });
  const float spread = squares - sum * sum / count;
  const half_t scale = format::store_scale(spread > 0 ? cross / spread / format::tq::kLevelUnit : 0.0f);
  const half_t zero = format::store_scale(mean - half_to_float(scale) * format::tq::kLevelUnit * (sum / count));
  return {zero == kHalfNan ? kHalfNan : scale, zero};
}

HWY_INLINE Metadata encode_int8_row(const float* row, int n, uint8_t* codes) {
  const DF df;
  const hn::Rebind<int8_t, DF> d8;
  const float largest = absmax(row, n);
  const half_t stored = std::isfinite(largest) ? format::store_scale_up(largest / 127.0f) : kHalfNan;
  const float scale = half_to_float(stored);
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  if (inverse == 0) return zero_codes(n, codes, {stored, 0});
  for (int d = 0; d < n; d += kLanes) {
    const VI32 code = hn::NearestInt(hn::Mul(hn::LoadU(df, row + d), hn::Set(df, inverse)));
    hn::StoreU(hn::DemoteTo(d8, code), d8, reinterpret_cast<int8_t*>(codes + d));
  }
  return {stored, 0};
}

template <int kBits>
HWY_INLINE Metadata encode_k_row(const float* row, int n, const EncodeOptions& options, uint8_t* codes) {
  if constexpr (kBits == 8) {
    return encode_int8_row(row, n, codes);
  } else {
    return encode_tq_k_row<kBits>(row, n, options, codes);
  }
}

template <int kBits>
HWY_INLINE Metadata encode_v_row(const float* row, int n, uint8_t* codes) {
  if constexpr (kBits == 8) {
    return encode_int8_row(row, n, codes);
  } else {
    return encode_tq_v_row<kBits>(row, n, codes);
  }
}

HWY_INLINE VU32x4 load_codes(const uint8_t* codes) { return hn::BitCast(DU32x4(), hn::Load(DU8x16(), codes)); }
HWY_INLINE void store_codes(VU32x4 block, uint8_t* units) { hn::Store(hn::BitCast(DU8x16(), block), DU8x16(), units); }

/// Puts four rows of codes into unit order as K: r = dim, o = token.
HWY_INLINE void place_k(const uint8_t (*rows)[kMaxRow], int head_dim, int token, uint8_t* units) {
  constexpr int kRow = kTileTokens * 4;
  for (int d = 0; d < head_dim; d += 16) {
    VU32x4 a = load_codes(rows[0] + d), b = load_codes(rows[1] + d);
    VU32x4 c = load_codes(rows[2] + d), e = load_codes(rows[3] + d);
    transpose4(a, b, c, e);
    uint8_t* out = units + planar::index(d, token, kTileTokens);
    store_codes(a, out);
    store_codes(b, out + kRow);
    store_codes(c, out + 2 * kRow);
    store_codes(e, out + 3 * kRow);
  }
}

/// Puts four rows of codes into unit order as V: r = token, o = dim.
HWY_INLINE void place_v(const uint8_t (*rows)[kMaxRow], int head_dim, int token, uint8_t* units) {
  const hn::FixedTag<uint16_t, 8> d16;
  const DU8x16 d8;
  for (int d = 0; d < head_dim; d += 16) {
    const VU8x16 a = hn::Load(d8, rows[0] + d), b = hn::Load(d8, rows[1] + d);
    const VU8x16 c = hn::Load(d8, rows[2] + d), e = hn::Load(d8, rows[3] + d);
    const auto ab_low = hn::BitCast(d16, hn::InterleaveLower(d8, a, b));
    const auto ab_high = hn::BitCast(d16, hn::InterleaveUpper(d8, a, b));
    const auto ce_low = hn::BitCast(d16, hn::InterleaveLower(d8, c, e));
    const auto ce_high = hn::BitCast(d16, hn::InterleaveUpper(d8, c, e));
    uint8_t* out = units + planar::index(token, d, head_dim);
    hn::Store(hn::BitCast(d8, hn::InterleaveLower(d16, ab_low, ce_low)), d8, out);
    hn::Store(hn::BitCast(d8, hn::InterleaveUpper(d16, ab_low, ce_low)), d8, out + 16);
    hn::Store(hn::BitCast(d8, hn::InterleaveLower(d16, ab_high, ce_high)), d8, out + 32);
    hn::Store(hn::BitCast(d8, hn::InterleaveUpper(d16, ab_high, ce_high)), d8, out + 48);
  }
}

/// format::planar::pack_plane.
template <int w>
HWY_INLINE void pack_plane(const uint8_t* units, int head_dim, int shift, uint8_t* out) {
  constexpr int kPerByte = 8 / w;
  const DU8 d8;
  const DU16 d16;
  const VU8 mask = hn::Set(d8, static_cast<uint8_t>((1u << w) - 1));
  for (int u = 0; u < head_dim; u += kPerByte, out += planar::kUnit) {
    for (int i = 0; i < planar::kUnit; i += kBytes) {
      VU8 byte = hn::Zero(d8);
      for (int j = 0; j < kPerByte; ++j) {
        const auto code = hn::BitCast(d16, hn::Load(d8, units + (u + j) * planar::kUnit + i));
        const VU8 field = hn::And(hn::BitCast(d8, hn::ShiftRightSame(code, shift)), mask);
        byte = hn::Or(byte, hn::BitCast(d8, hn::ShiftLeftSame(hn::BitCast(d16, field), w * j)));
      }
      hn::StoreU(byte, d8, out + i);
    }
  }
}

template <int kBits>
HWY_INLINE void pack(const uint8_t* units, int head_dim, uint8_t* tile) {
  if constexpr (kBits == 8) {
    std::memcpy(tile, units, planar::bytes(head_dim, 8));
  } else {
    constexpr planar::Planes kPlanes = planar::planes(kBits);
    pack_plane<kPlanes.width[0]>(units, head_dim, 0, tile);
    if constexpr (kPlanes.width[1] != 0) {
      pack_plane<kPlanes.width[1]>(units, head_dim, kPlanes.width[0], tile + planar::bytes(head_dim, kPlanes.width[0]));
    }
  }
}

template <int kBits>
void k_encode(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile) {
  alignas(64) uint8_t units[kMaxRow * planar::kUnit];
  alignas(64) uint8_t codes[4][kMaxRow];
  half_t scales[kTileTokens];
  for (int t = 0; t < kTileTokens; t += 4) {
    for (int i = 0; i < 4; ++i) {
      scales[t + i] = encode_k_row<kBits>(rows + (t + i) * head_dim, head_dim, options, codes[i]).scale;
    }
    place_k(codes, head_dim, t, units);
  }
  pack<kBits>(units, head_dim, tile);
  std::memcpy(tile + planar::bytes(head_dim, kBits), scales, sizeof(scales));
}

template <int kBits>
void v_encode(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  alignas(64) uint8_t units[kMaxRow * planar::kUnit];
  alignas(64) uint8_t codes[4][kMaxRow];
  half_t scales[kTileTokens], zeros[kTileTokens];
  for (int t = 0; t < kTileTokens; t += 4) {
    for (int i = 0; i < 4; ++i) {
      const Metadata metadata = encode_v_row<kBits>(rows + (t + i) * head_dim, head_dim, codes[i]);
      scales[t + i] = metadata.scale;
      zeros[t + i] = metadata.zero;
    }
    place_v(codes, head_dim, t, units);
  }
  pack<kBits>(units, head_dim, tile);
  std::memcpy(tile + planar::bytes(head_dim, kBits), scales, sizeof(scales));
  if constexpr (kBits != 8) {
    std::memcpy(tile + planar::bytes(head_dim, kBits) + sizeof(scales), zeros, sizeof(zeros));
  }
}

void encode_f16(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  uint16_t* halves = reinterpret_cast<uint16_t*>(tile);
  for (int i = 0; i < kTileTokens * head_dim; i += kLanes) store_half(hn::LoadU(DF(), rows + i), halves + i);
}

/// format::fp8::e4m3_from_float of finite x.
HWY_INLINE void store_e4m3(VF x, uint8_t* out) {
  const DF df;
  const DU32 d32;
  const hn::Rebind<uint8_t, DF> d8;
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(d32, x)), hn::Set(d32, 0x80u));
  const VF bounded = hn::Min(hn::Abs(x), hn::Set(df, format::fp8::kMax));
  const auto bits = hn::BitCast(d32, bounded);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(bits, hn::Set(d32, 0x7ffffu)), odd));
  const auto normal = hn::Sub(rounded, hn::Set(d32, 120u << 3));
  const auto subnormal = hn::And(hn::BitCast(d32, hn::Add(bounded, hn::Set(df, 0x1p14f))), hn::Set(d32, 0xfu));
  const auto small = hn::RebindMask(d32, hn::Lt(bounded, hn::Set(df, 0x1p-6f)));
  const auto code = hn::Or(sign, hn::IfThenElse(small, subnormal, normal));
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(DI32(), code)), d8, out);
}

void encode_fp8(const float* rows, int head_dim, const EncodeOptions&, uint8_t* tile) {
  half_t scales[kTileTokens];
  for (int t = 0; t < kTileTokens; ++t) {
    const float* row = rows + t * head_dim;
    uint8_t* out = tile + t * head_dim;
    const float largest = absmax(row, head_dim);
    scales[t] = std::isfinite(largest) ? format::store_scale_up(largest / format::fp8::kMax) : kHalfNan;
    const float scale = half_to_float(scales[t]);
    if (!(scale > 0)) {  // a zero row, or a lost one
      std::memset(out, 0, static_cast<size_t>(head_dim));
      continue;
    }
    const VF inverse = hn::Set(DF(), 1.0f / scale);
    for (int d = 0; d < head_dim; d += kLanes) store_e4m3(hn::Mul(hn::LoadU(DF(), row + d), inverse), out + d);
  }
  std::memcpy(tile + kTileTokens * head_dim, scales, sizeof(scales));
}

template <KCodec kCodec, int kBits>
void set_k(Kernels& table) {
  table.k_encode[static_cast<size_t>(kCodec)] = k_encode<kBits>;
}
template <VCodec kCodec, int kBits>
void set_v(Kernels& table) {
  table.v_encode[static_cast<size_t>(kCodec)] = v_encode<kBits>;
}

}  // namespace

void fill_encode(Kernels& table) {
  table.k_encode[static_cast<size_t>(KCodec::kF16)] = encode_f16;
  table.k_encode[static_cast<size_t>(KCodec::kFp8)] = encode_fp8;
  table.v_encode[static_cast<size_t>(VCodec::kF16)] = encode_f16;
  table.v_encode[static_cast<size_t>(VCodec::kFp8)] = encode_fp8;
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
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
