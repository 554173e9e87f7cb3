// The rotation of format/rotation.h: the same butterflies in the same order, so results are equal bit for bit.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/rotation.cc"
#include "kernels/cpu/simd/targets.h"
//
#include "hwy/foreach_target.h"
//
#include <array>
#include <cmath>

#include "format/hadamard.h"
#include "kernels/cpu/simd/vector-inl.h"

#if VARVE_SIMD_TARGET
VARVE_BEFORE_TARGET();
namespace varve::kernels::HWY_NAMESPACE {
namespace {

/// x[i], x[i + kHalf] <- their sum and difference, inside vectors of D.
template <int kHalf, class D, class V = hn::Vec<D>>
HWY_INLINE V butterfly(D d, V x) {
  alignas(64) static constexpr float kSigns[5][16] = {
      {},
      {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
  };
  if constexpr (kHalf == 1) return hn::MulAdd(x, hn::Load(d, kSigns[1]), hn::Shuffle2301(x));
  if constexpr (kHalf == 2) return hn::MulAdd(x, hn::Load(d, kSigns[2]), hn::Shuffle1032(x));
  if constexpr (kHalf == 4) return hn::MulAdd(x, hn::Load(d, kSigns[3]), hn::SwapAdjacentBlocks(x));
  if constexpr (kHalf == 8) return hn::MulAdd(x, hn::Load(d, kSigns[4]), hn::ConcatLowerUpper(d, x, x));
}

/// Unnormalised Sylvester transform of every run of `width` elements of x[n]; vectors of D fit into a run.
template <class D>
HWY_INLINE void sylvester(D d, float* x, int n, int width) {
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  for (int i = 0; i < n; i += kN) {
    auto v = hn::LoadU(d, x + i);
    v = butterfly<1>(d, v);
    v = butterfly<2>(d, v);
    if constexpr (kN >= 8) v = butterfly<4>(d, v);
    if constexpr (kN >= 16) v = butterfly<8>(d, v);
    hn::StoreU(v, d, x + i);
  }
  for (int half = kN; half < width; half *= 2) {
    for (int base = 0; base < n; base += 2 * half) {
      for (int i = base; i < base + half; i += kN) {
        const auto a = hn::LoadU(d, x + i);
        const auto b = hn::LoadU(d, x + i + half);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + half);
      }
    }
  }
}

template <size_t order>
constexpr std::array<std::array<float, order>, order> as_float(
    const std::array<std::array<int8_t, order>, order>& core) {
  std::array<std::array<float, order>, order> out{};
  for (size_t i = 0; i < order; ++i) {
    for (size_t j = 0; j < order; ++j) out[i][j] = core[i][j];
  }
  return out;
}
constexpr auto kCore12 = as_float(format::kHadamard12);
constexpr auto kCore20 = as_float(format::kHadamard20);

/// x[a][b] <- sum_a' core[a][a'] x[a'][b], b in [0, width).
template <class D, size_t order>
HWY_INLINE void dense_core(D d, const std::array<std::array<float, order>, order>& core, float* x, int width) {
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  for (int b = 0; b < width; b += kN) {
    hn::Vec<D> sum[order];  // sum[i] gathers the terms of row i in the order of the reference
    for (auto& s : sum) s = hn::Zero(d);
    for (size_t from = 0; from < order; ++from) {
      const auto in = hn::LoadU(d, x + static_cast<int>(from) * width + b);
      for (size_t a = 0; a < order; ++a) sum[a] = hn::MulAdd(hn::Set(d, core[a][from]), in, sum[a]);
    }
    for (size_t a = 0; a < order; ++a) hn::StoreU(sum[a], d, x + static_cast<int>(a) * width + b);
  }
}

/// Unnormalised Hadamard transform of one row.
HWY_INLINE void hadamard(float* x, int head_dim) {
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  switch (format::hadamard_core_order(head_dim)) {
    case 1: return sylvester(DF(), x, head_dim, head_dim);
    case 12:
      if (head_dim / 12 >= kLanes) {
        sylvester(DF(), x, head_dim, head_dim / 12);
        return dense_core(DF(), kCore12, x, head_dim / 12);
      }
      sylvester(d8, x, head_dim, head_dim / 12);
      return dense_core(d8, kCore12, x, head_dim / 12);
    default: sylvester(d4, x, head_dim, head_dim / 20); return dense_core(d4, kCore20, x, head_dim / 20);
  }
}

HWY_INLINE float norm(int head_dim) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }

void rotate(float* rows, int n, int head_dim, const float* signs) {
  const DF df;
  const VF scale = hn::Set(df, norm(head_dim));
  for (int r = 0; r < n; ++r, rows += head_dim) {
    for (int i = 0; i < head_dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, rows + i), hn::LoadU(df, signs + i)), df, rows + i);
    }
    hadamard(rows, head_dim);
    for (int i = 0; i < head_dim; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, rows + i), scale), df, rows + i);
  }
}

void unrotate(float* rows, int n, int head_dim, const float* signs) {
  const DF df;
  const VF scale = hn::Set(df, norm(head_dim));
  for (int r = 0; r < n; ++r, rows += head_dim) {
    hadamard(rows, head_dim);
    for (int i = 0; i < head_dim; i += kLanes) {
      const VF signed_scale = hn::Mul(scale, hn::LoadU(df, signs + i));
      hn::StoreU(hn::Mul(hn::LoadU(df, rows + i), signed_scale), df, rows + i);
    }
  }
}

}  // namespace

void fill_rotation(Kernels& table) {
  table.rotate = rotate;
  table.unrotate = unrotate;
}

}  // namespace varve::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // VARVE_SIMD_TARGET
