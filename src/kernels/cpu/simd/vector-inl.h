// Vectors and small helpers for the target being compiled. Included once per target.

#if defined(VARVE_SIMD_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_SIMD_VECTOR_INL_H
#undef VARVE_SIMD_VECTOR_INL_H
#else
#define VARVE_SIMD_VECTOR_INL_H
#endif

#include "hwy/highway.h"

// True in the passes that generate code: a portable build also visits these files for the scalar baseline.
#undef VARVE_SIMD_TARGET
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define VARVE_SIMD_TARGET 1
#else
#define VARVE_SIMD_TARGET 0
#endif

// Highway 1.0 runs AVX3_DL only where AVX512_VNNI is present, but does not switch the instructions on.
#undef VARVE_BEFORE_TARGET
#if HWY_TARGET == HWY_AVX3_DL
#define VARVE_BEFORE_TARGET() HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
#define VARVE_BEFORE_TARGET() HWY_BEFORE_NAMESPACE()
#endif

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI32 = hn::ScalableTag<int32_t>;
using DU32 = hn::ScalableTag<uint32_t>;
using DI16 = hn::ScalableTag<int16_t>;
using DU16 = hn::ScalableTag<uint16_t>;
using DU8 = hn::ScalableTag<uint8_t>;
using DI8 = hn::ScalableTag<int8_t>;
using VF = hn::Vec<DF>;
using VI32 = hn::Vec<DI32>;
using VU8 = hn::Vec<DU8>;

using DF4 = hn::FixedTag<float, 4>;
using DU8x16 = hn::FixedTag<uint8_t, 16>;
using DU32x4 = hn::FixedTag<uint32_t, 4>;
using VF4 = hn::Vec<DF4>;
using VU8x16 = hn::Vec<DU8x16>;
using VU32x4 = hn::Vec<DU32x4>;

inline constexpr int kLanes = HWY_LANES(float);       ///< 32-bit lanes: 8 or 16
inline constexpr int kBytes = HWY_LANES(uint8_t);     ///< bytes of a vector
inline constexpr bool kWideRegisters = kLanes == 16;  ///< AVX-512: 32 registers

/// Lanes of f16 as fp32. p need not be aligned.
HWY_INLINE VF load_half(const uint16_t* p) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE void store_half(VF v, uint16_t* p) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
}

/// Signed bytes [kLanes] as fp32.
HWY_INLINE VF load_bytes(const int8_t* p) {
  const hn::Rebind<int8_t, DF> d8;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d8, p)));
}

/// Vectors that hold 16 fp32 values, the unit that divides every head_dim.
inline constexpr int kParts = 16 / kLanes;

/// 16 E4M3 values as fp32, divided by kE4m3Scale, which callers fold into the row's scale.
inline constexpr float kE4m3Scale = 256.0f;
HWY_INLINE void load_e4m3(const uint8_t* p, VF out[kParts]) {
  // The code becomes an f16: the sign stays on top, exponent and mantissa move below the top exponent bit. The
  // conversion handles subnormals; f16's exponent bias is 8 larger.
  const hn::FixedTag<int16_t, 16> d16;
  const auto code = hn::BitCast(d16, hn::PromoteTo(hn::FixedTag<uint16_t, 16>(), hn::LoadU(DU8x16(), p)));
  const auto placed = hn::ShiftRight<1>(hn::ShiftLeft<8>(code));
  const auto finite = hn::And(placed, hn::Set(d16, static_cast<int16_t>(0xbf80)));
  // NaN has all bits below the sign: one more unit carries into the top exponent bit, and into no other code's.
  const auto carried = hn::And(hn::Add(finite, hn::Set(d16, int16_t{0x80})), hn::Set(d16, int16_t{0x4000}));
  const auto half = hn::Or(finite, carried);
  const hn::FixedTag<hwy::float16_t, 16> dh;
#if HWY_TARGET == HWY_AVX2
  const hn::Half<decltype(dh)> dh8;
  const auto bits = hn::BitCast(dh, half);
  out[0] = hn::PromoteTo(DF(), hn::LowerHalf(dh8, bits));
  out[1] = hn::PromoteTo(DF(), hn::UpperHalf(dh8, bits));
#else
  out[0] = hn::PromoteTo(DF(), hn::BitCast(dh, half));
#endif
}

/// The bits of |x| where they are larger.
HWY_INLINE VI32 larger_magnitude(VI32 largest, VF x) {
  const DI32 di;
  return hn::Max(largest, hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff)));
}

/// The largest |x| of x[n] as bits, n a multiple of 16: NaN > infinity > finite.
HWY_INLINE int32_t absmax_bits(const float* x, int n) {
  const DI32 di;
  VI32 largest = hn::Zero(di);
  for (int i = 0; i < n; i += kLanes) largest = larger_magnitude(largest, hn::LoadU(DF(), x + i));
  return hn::GetLane(hn::MaxOfLanes(di, largest));
}

/// Transposes a 4x4 block of 32-bit elements: row i of the result is element i of every argument.
HWY_INLINE void transpose4(VU32x4& a, VU32x4& b, VU32x4& c, VU32x4& d) {
  const DU32x4 d32;
  const hn::FixedTag<uint64_t, 2> d64;
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d32, a, b));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d32, a, b));
  const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d32, c, d));
  const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d32, c, d));
  a = hn::BitCast(d32, hn::InterleaveLower(d64, ab_low, cd_low));
  b = hn::BitCast(d32, hn::InterleaveUpper(d64, ab_low, cd_low));
  c = hn::BitCast(d32, hn::InterleaveLower(d64, ab_high, cd_high));
  d = hn::BitCast(d32, hn::InterleaveUpper(d64, ab_high, cd_high));
}

/// The sums of the lanes of four vectors.
HWY_INLINE VF4 sum_lanes4(VF a, VF b, VF c, VF d) {
  const DF df;
  const hn::ScalableTag<double> dd;
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto low = hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd));
  const auto high = hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, cd));
  const VF blocks = hn::Add(hn::BitCast(df, low), hn::BitCast(df, high));
  const hn::Half<DF> half;
  const auto folded = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
#if HWY_TARGET == HWY_AVX2
  return folded;
#else
  const hn::Half<hn::Half<DF> > quarter;
  return hn::Add(hn::LowerHalf(quarter, folded), hn::UpperHalf(quarter, folded));
#endif
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET

#endif  // VARVE_SIMD_VECTOR_INL_H
