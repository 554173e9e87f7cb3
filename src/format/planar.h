#pragma once
// Bit-planar packing of the 64 * head_dim codes of one tile, shared by all integer codecs (docs/adr/0005).
//
// A tile is a code matrix with a reduction index r and an output index o: for K r is the dim and o the token, for V r
// is the token and o the dim. Attention sums over r, so a 64-byte unit holds 16 outputs x 4 reduction steps and a
// kernel accumulates per output without a horizontal sum:
//   unit u = (r / 4) * (outputs / 16) + o / 16,  lane i = (o % 16) * 4 + r % 4;  head_dim units in all.
// A code of b bits is cut into planes of 4, 2, 1 bits, wide first, low code bits first. A plane of w bits packs 8 / w
// consecutive units into the same 64 bytes: unit u, lane i is at byte u / (8/w) * 64 + i, shifted left by
// w * (u % (8/w)).

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/codec.h"

namespace varve::format::planar {

inline constexpr int kUnit = 64;  ///< codes per unit

/// Where the code of (r, o) sits in unit order, the order pack() reads: u * kUnit + i.
constexpr size_t index(int r, int o, int outputs) {
  return static_cast<size_t>((r / 4) * (outputs / 16) + o / 16) * kUnit + static_cast<size_t>((o % 16) * 4 + r % 4);
}

/// Bytes of the packed codes of one tile.
constexpr size_t bytes(int head_dim, int bits) {
  return static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim) * static_cast<size_t>(bits) / 8;
}

/// Plane widths of a code, in storage order. width[1] is 0 when one plane is enough.
struct Planes {
  int width[2];
};
constexpr Planes planes(int bits) {
  switch (bits) {
    case 8:
      return {{8, 0}};
    case 6:
      return {{4, 2}};
    case 5:
      return {{4, 1}};
    case 4:
      return {{4, 0}};
    case 3:
      return {{2, 1}};
    default:
      return {{2, 0}};
  }
}

/// Packs bits [shift, shift + w) of every code. codes: [head_dim][kUnit] in unit order. out: bytes(head_dim, w).
template <int w>
void pack_plane(const uint8_t* codes, int head_dim, int shift, uint8_t* out) {
  constexpr int kPerByte = 8 / w;
  constexpr unsigned kMask = (1u << w) - 1;
  for (int u = 0; u < head_dim; u += kPerByte, out += kUnit) {
    for (int i = 0; i < kUnit; ++i) {
      unsigned byte = 0;
      for (int j = 0; j < kPerByte; ++j) byte |= ((codes[(u + j) * kUnit + i] >> shift) & kMask) << (w * j);
      out[i] = static_cast<uint8_t>(byte);
    }
  }
}

/// Inverse of pack_plane: ORs the plane's bits into codes, which start as zeros.
template <int w>
void unpack_plane(const uint8_t* in, int head_dim, int shift, uint8_t* codes) {
  constexpr int kPerByte = 8 / w;
  constexpr unsigned kMask = (1u << w) - 1;
  for (int u = 0; u < head_dim; u += kPerByte, in += kUnit) {
    for (int i = 0; i < kUnit; ++i) {
      for (int j = 0; j < kPerByte; ++j) {
        codes[(u + j) * kUnit + i] |= static_cast<uint8_t>(((in[i] >> (w * j)) & kMask) << shift);
      }
    }
  }
}

/// codes: [head_dim][kUnit] in unit order, each below 2^bits. out: bytes(head_dim, bits).
template <int bits>
void pack(const uint8_t* codes, int head_dim, uint8_t* out) {
  constexpr Planes kPlanes = planes(bits);
  pack_plane<kPlanes.width[0]>(codes, head_dim, 0, out);
  if constexpr (kPlanes.width[1] != 0) {
    pack_plane<kPlanes.width[1]>(codes, head_dim, kPlanes.width[0], out + bytes(head_dim, kPlanes.width[0]));
  }
}

/// Inverse of pack.
template <int bits>
void unpack(const uint8_t* in, int head_dim, uint8_t* codes) {
  constexpr Planes kPlanes = planes(bits);
  std::memset(codes, 0, static_cast<size_t>(head_dim) * kUnit);
  unpack_plane<kPlanes.width[0]>(in, head_dim, 0, codes);
  if constexpr (kPlanes.width[1] != 0) {
    unpack_plane<kPlanes.width[1]>(in + bytes(head_dim, kPlanes.width[0]), head_dim, kPlanes.width[0], codes);
  }
}

/// Puts the codes of one token, row[head_dim], into unit order as K (r = dim, o = token).
inline void place_k(const uint8_t* row, int head_dim, int token, uint8_t* codes) {
  for (int d = 0; d < head_dim; d += 4) std::memcpy(codes + index(d, token, kTileTokens), row + d, 4);
}
/// Puts four tokens' codes, rows[4][stride], the first at `token` (a multiple of 4), into unit order as V (r = token,
/// o = dim). Four at a time, because they share every four bytes of a unit.
inline void place_v(const uint8_t* rows, size_t stride, int head_dim, int token, uint8_t* codes) {
  uint8_t* out = codes + index(token, 0, head_dim);
  for (int d = 0; d < head_dim; ++d) {
    const uint32_t quad = rows[d] | uint32_t{rows[stride + d]} << 8 | uint32_t{rows[2 * stride + d]} << 16 |
                          uint32_t{rows[3 * stride + d]} << 24;
    std::memcpy(out + 4 * d, &quad, sizeof(quad));
  }
}

}  // namespace varve::format::planar
