// Tiles to fp32 rows, equal bit for bit to the scalar references of src/format.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/decode.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "base/half.h"
#include "format/tq/layout.h"
#include "kernels/cpu/simd/unpack-inl.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

template <int kBits>
constexpr float kUnitScale = kBits == 8 ? 1.0f : format::tq::kLevelUnit;

/// 16 consecutive dims of one token: out = zero + scale * integer (no zero for kZero = false).
template <bool kZero>
HWY_INLINE void store_dims(VU32x4 biased, float scale, float zero, float* out) {
  alignas(16) int8_t integers[16];
  const hn::FixedTag<int8_t, 16> d8;
  hn::Store(hn::BitCast(d8, hn::Xor(hn::BitCast(DU8x16(), biased), hn::Set(DU8x16(), uint8_t{kBias}))), d8, integers);
  const DF df;
  for (int i = 0; i < 16; i += kLanes) {
    VF value = hn::Mul(load_bytes(integers + i), hn::Set(df, scale));
    if constexpr (kZero) value = hn::Add(hn::Set(df, zero), value);
    hn::StoreU(value, df, out + i);
  }
}

HWY_INLINE VU32x4 load_block(const uint8_t* units) { return hn::BitCast(DU32x4(), hn::Load(DU8x16(), units)); }

template <int kBits>
void k_decode(const uint8_t* tile, int head_dim, float* rows) {
  alignas(64) uint8_t units[kMaxUnpacked];
  unpack<kBits>(tile, head_dim, units);
  const uint16_t* norms = reinterpret_cast<const uint16_t*>(tile + planar::bytes(head_dim, kBits));
  for (int t = 0; t < kTileTokens; t += 4) {
    float scale[4];
    for (int i = 0; i < 4; ++i) scale[i] = half_to_float(norms[t + i]) * kUnitScale<kBits>;
    for (int d = 0; d < head_dim; d += 16) {
      // One block holds four tokens x four dims; four of them, one under the other, hold 16 dims.
      const uint8_t* block = units + planar::index(d, t, kTileTokens);
      constexpr int kRow = kTileTokens * 4;
      VU32x4 a = load_block(block), b = load_block(block + kRow);
      VU32x4 c = load_block(block + 2 * kRow), e = load_block(block + 3 * kRow);
      transpose4(a, b, c, e);
      store_dims<false>(a, scale[0], 0, rows + (t + 0) * head_dim + d);
      store_dims<false>(b, scale[1], 0, rows + (t + 1) * head_dim + d);
      store_dims<false>(c, scale[2], 0, rows + (t + 2) * head_dim + d);
      store_dims<false>(e, scale[3], 0, rows + (t + 3) * head_dim + d);
    }
  }
}

/// Four dims x four tokens to four tokens x four dims.
HWY_INLINE VU32x4 transpose_bytes(VU32x4 block) {
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  return hn::TableLookupBytes(block, hn::BitCast(DU32x4(), hn::Load(DU8x16(), kOrder)));
}

template <int kBits>
void v_decode(const uint8_t* tile, int head_dim, float* rows) {
  constexpr bool kZero = kBits != 8;
  alignas(64) uint8_t units[kMaxUnpacked];
  unpack<kBits>(tile, head_dim, units);
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(tile + planar::bytes(head_dim, kBits));
  for (int t = 0; t < kTileTokens; t += 4) {
    float scale[4], zero[4] = {};
    for (int i = 0; i < 4; ++i) {
      scale[i] = half_to_float(scales[t + i]) * kUnitScale<kBits>;
      if constexpr (kZero) zero[i] = half_to_float(scales[kTileTokens + t + i]);
    }
    for (int d = 0; d < head_dim; d += 16) {
      const uint8_t* unit = units + planar::index(t, d, head_dim);
      VU32x4 a = transpose_bytes(load_block(unit)), b = transpose_bytes(load_block(unit + 16));
      VU32x4 c = transpose_bytes(load_block(unit + 32)), e = transpose_bytes(load_block(unit + 48));
      transpose4(a, b, c, e);
      store_dims<kZero>(a, scale[0], zero[0], rows + (t + 0) * head_dim + d);
      store_dims<kZero>(b, scale[1], zero[1], rows + (t + 1) * head_dim + d);
      store_dims<kZero>(c, scale[2], zero[2], rows + (t + 2) * head_dim + d);
      store_dims<kZero>(e, scale[3], zero[3], rows + (t + 3) * head_dim + d);
    }
  }
}

void decode_f16(const uint8_t* tile, int head_dim, float* rows) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(tile);
  for (int i = 0; i < kTileTokens * head_dim; i += kLanes) hn::StoreU(load_half(halves + i), DF(), rows + i);
}

void decode_fp8(const uint8_t* tile, int head_dim, float* rows) {
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(tile + kTileTokens * head_dim);
  for (int t = 0; t < kTileTokens; ++t) {
    const VF scale = hn::Set(DF(), half_to_float(scales[t]) * kE4m3Scale);
    for (int d = 0; d < head_dim; d += 16) {
      VF values[kParts];
      load_e4m3(tile + t * head_dim + d, values);
      for (int i = 0; i < kParts; ++i) {
        hn::StoreU(hn::Mul(values[i], scale), DF(), rows + t * head_dim + d + i * kLanes);
      }
    }
  }
}

template <KCodec kCodec, int kBits>
void set_k(Kernels& table) {
  table.k_decode[static_cast<size_t>(kCodec)] = k_decode<kBits>;
}
template <VCodec kCodec, int kBits>
void set_v(Kernels& table) {
  table.v_decode[static_cast<size_t>(kCodec)] = v_decode<kBits>;
}

}  // namespace

void fill_decode(Kernels& table) {
  table.k_decode[static_cast<size_t>(KCodec::kF16)] = decode_f16;
  table.k_decode[static_cast<size_t>(KCodec::kFp8)] = decode_fp8;
  table.v_decode[static_cast<size_t>(VCodec::kF16)] = decode_f16;
  table.v_decode[static_cast<size_t>(VCodec::kFp8)] = decode_fp8;
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
