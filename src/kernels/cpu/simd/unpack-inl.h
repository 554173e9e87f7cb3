// Unpacks the codes of a planar tile (format/planar.h) to one byte per value, in unit order, biased by 128 so that the
// 16-bit halves of a lane separate with one mask and one shift. Included once per target.

#if defined(VARVE_SIMD_UNPACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef VARVE_SIMD_UNPACK_INL_H
#undef VARVE_SIMD_UNPACK_INL_H
#else
#define VARVE_SIMD_UNPACK_INL_H
#endif

#include "format/planar.h"
#include "format/tq/codebook.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {

namespace planar = format::planar;

inline constexpr int kBias = 128;
/// Bytes of the largest unpacked tile.
inline constexpr int kMaxUnpacked = format::kMaxHeadDim * planar::kUnit;

/// Shifts bits left (right when negative), across byte borders: mask what must not be seen.
template <int kShift>
HWY_INLINE VU8 shift_bits(VU8 v) {
  const DU8 d8;
  const DU16 d16;
  if constexpr (kShift > 0) return hn::BitCast(d8, hn::ShiftLeft<kShift>(hn::BitCast(d16, v)));
  if constexpr (kShift < 0) return hn::BitCast(d8, hn::ShiftRight<-kShift>(hn::BitCast(d16, v)));
  return v;
}

/// yes where the top bit of a byte of `select` is set.
HWY_INLINE VU8 select_by_sign(VU8 select, VU8 yes, VU8 no) {
  const DU8 d8;
  const DI8 di8;
  return hn::BitCast(d8, hn::IfNegativeThenElse(hn::BitCast(di8, select), hn::BitCast(di8, yes), hn::BitCast(di8, no)));
}

/// 64 biased levels: the codebook, repeated.
template <int kBits>
struct BiasedLevels {
  constexpr BiasedLevels() : level{} {
    for (int i = 0; i < 64; ++i) {
      level[i] = static_cast<uint8_t>(format::tq::kLevels<kBits>[i % (1 << kBits)] + kBias);
    }
  }
  alignas(64) uint8_t level[64];
};

/// The codebook in registers.
template <int kBits>
class Levels {
 public:
  HWY_INLINE Levels() {
    static constexpr BiasedLevels<kBits> kTable;
#if HWY_TARGET == HWY_AVX3_DL
    table_[0] = hn::Load(DU8(), kTable.level);
#else
    for (int i = 0; i < kTables; ++i) table_[i] = hn::LoadDup128(DU8(), kTable.level + 16 * i);
#endif
  }

  /// Biased levels of codes whose low plane's bits start at bit kLow of `low` and high plane's at bit kHigh of `high`.
  template <int kLow, int kHigh>
  HWY_INLINE VU8 at(VU8 low, VU8 high) const {
    const DU8 d8;
    constexpr uint8_t kLowMask = (1 << kPlanes.width[0]) - 1;
    VU8 index = shift_bits<-kLow>(low);
#if HWY_TARGET == HWY_AVX3_DL
    // The permute reads six bits of an index and the table repeats, so bits above the code may hold anything.
    if constexpr (kPlanes.width[1] != 0) {
      index = hn::IfVecThenElse(hn::Set(d8, kLowMask), index, shift_bits<kPlanes.width[0] - kHigh>(high));
    }
    return VU8{_mm512_permutexvar_epi8(index.raw, table_[0].raw)};
#else
    index = hn::And(index, hn::Set(d8, kLowMask));
    if constexpr (kBits == 3) index = hn::Or(index, hn::And(shift_bits<2 - kHigh>(high), hn::Set(d8, uint8_t{4})));
    const VU8 first = hn::TableLookupBytes(table_[0], index);
    if constexpr (kTables == 1) return first;
    if constexpr (kTables >= 2) {
      const VU8 bit4 = shift_bits<7 - kHigh>(high);
      const VU8 lower = select_by_sign(bit4, hn::TableLookupBytes(table_[1], index), first);
      if constexpr (kTables == 2) return lower;
      if constexpr (kTables == 4) {
        const VU8 bit5 = shift_bits<6 - kHigh>(high);
        const VU8 upper =
            select_by_sign(bit4, hn::TableLookupBytes(table_[3], index), hn::TableLookupBytes(table_[2], index));
        return select_by_sign(bit5, upper, lower);
      }
    }
#endif
  }

 private:
  static constexpr planar::Planes kPlanes = planar::planes(kBits);
#if HWY_TARGET == HWY_AVX3_DL
  static constexpr int kTables = 1;
#else
  static constexpr int kTables = kBits == 6 ? 4 : kBits == 5 ? 2 : 1;
#endif
  VU8 table_[kTables];
};

/// Units k, k + 1 ... kCount - 1 of a group; low, high: the planes' bytes at unit 0 of the group.
template <int kBits, int kCount, int k = 0>
HWY_INLINE void unpack_group(const Levels<kBits>& levels, const uint8_t* HWY_RESTRICT low,
                             const uint8_t* HWY_RESTRICT high, uint8_t* HWY_RESTRICT units) {
  if constexpr (k < kCount) {
    constexpr planar::Planes kPlanes = planar::planes(kBits);
    constexpr int kPerLow = 8 / kPlanes.width[0];
    const DU8 d8;
    const VU8 low_line = hn::LoadU(d8, low + k / kPerLow * planar::kUnit);
    if constexpr (kPlanes.width[1] == 0) {
      const VU8 level = levels.template at<kPlanes.width[0] * (k % kPerLow), 0>(low_line, low_line);
      hn::Store(level, d8, units + k * planar::kUnit);
    } else {
      constexpr int kPerHigh = 8 / kPlanes.width[1];
      const VU8 high_line = hn::LoadU(d8, high + k / kPerHigh * planar::kUnit);
      const VU8 level =
          levels.template at<kPlanes.width[0] * (k % kPerLow), kPlanes.width[1] * (k % kPerHigh)>(low_line, high_line);
      hn::Store(level, d8, units + k * planar::kUnit);
    }
    unpack_group<kBits, kCount, k + 1>(levels, low, high, units);
  }
}

/// units: [head_dim][64] bytes, aligned to a vector: the signed integer of each code plus kBias.
template <int kBits>
HWY_INLINE void unpack(const uint8_t* HWY_RESTRICT tile, int head_dim, uint8_t* HWY_RESTRICT units) {
  if constexpr (kBits == 8) {
    const DU8 d8;
    const VU8 flip = hn::Set(d8, uint8_t{kBias});
    for (int i = 0; i < head_dim * planar::kUnit; i += kBytes) {
      hn::Store(hn::Xor(hn::LoadU(d8, tile + i), flip), d8, units + i);
    }
  } else {
    constexpr planar::Planes kPlanes = planar::planes(kBits);
    constexpr int kNarrow = kPlanes.width[1] != 0 ? kPlanes.width[1] : kPlanes.width[0];
    constexpr int kGroup = 8 / kNarrow;  // units whose planes are whole lines
    const Levels<kBits> levels;
    const uint8_t* high = tile + planar::bytes(head_dim, kPlanes.width[0]);
    for (int u = 0; u < head_dim; u += kGroup) {
      for (int i = 0; i < planar::kUnit; i += kBytes) {
        unpack_group<kBits, kGroup>(levels, tile + u * 8 * kPlanes.width[0] + i, high + u * 8 * kPlanes.width[1] + i,
                                    units + u * planar::kUnit + i);
      }
    }
  }
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET

#endif  // VARVE_SIMD_UNPACK_INL_H
