#pragma once
// The Hadamard matrix of each supported head_dim, as (dense core) (x) (Sylvester 2^m): H[a * 2^m + b][a' * 2^m + b'] =
// core[a][a'] * sylvester[b][b']. The core is 1x1 for powers of two, H12 for 96 and 192, H20 for 80. All are symmetric.

#include <array>
#include <cstdint>

namespace varve::format {

/// Order of the dense core of a head_dim: 1, 12 or 20; 0 when no construction here gives that head_dim.
constexpr int hadamard_core_order(int head_dim) {
  for (const int core : {1, 12, 20}) {
    if (head_dim <= 0 || head_dim % core != 0) continue;
    const int rest = head_dim / core;
    if ((rest & (rest - 1)) == 0) return core;
  }
  return 0;
}

/// Paley's construction for order q + 1, q prime and 3 mod 4, bordered with ones: core entry (i, j) is the Legendre
/// symbol of i + j mod q, with -1 at 0. Taking i + j where the usual form has j - i permutes rows and makes it
/// symmetric.
template <int order>
constexpr std::array<std::array<int8_t, order>, order> paley_hadamard() {
  constexpr int q = order - 1;
  std::array<int8_t, q> symbol{};
  for (auto& s : symbol) s = -1;
  for (int x = 1; x < q; ++x) symbol[static_cast<size_t>(x * x % q)] = 1;
  std::array<std::array<int8_t, order>, order> h{};
  for (size_t i = 0; i < order; ++i) {
    for (size_t j = 0; j < order; ++j) h[i][j] = i == 0 || j == 0 ? int8_t{1} : symbol[(i + j - 2) % q];
  }
  return h;
}

inline constexpr auto kHadamard12 = paley_hadamard<12>();
inline constexpr auto kHadamard20 = paley_hadamard<20>();

}  // namespace varve::format
