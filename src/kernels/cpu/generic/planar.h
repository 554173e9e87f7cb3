#pragma once
// Planar integer tiles, read one code at a time (docs of the layout: format/int8 and format/tq FORMAT.md). A tile is a
// code matrix with reduction index r and output index o, in units of 16 outputs x 4 reduction steps, split in bit
// planes.

#include <cstddef>
#include <cstdint>

namespace varve::kernels::generic {

/// Bytes of the codes of one tile; the metadata follows.
constexpr size_t planar_code_bytes(int head_dim, int bits) { return 8u * static_cast<size_t>(head_dim * bits); }

/// The `bits`-wide code at (r, o) of a code matrix with `outputs` columns.
inline uint8_t planar_code(const uint8_t* tile, int head_dim, int bits, int outputs, int r, int o) {
  const size_t unit = static_cast<size_t>((r / 4) * (outputs / 16) + o / 16);
  const size_t lane = static_cast<size_t>(o % 16 * 4 + r % 4);
  unsigned code = 0;
  int shift = 0;  // of the next plane's bits within the code
  const uint8_t* plane = tile;
  while (shift < bits) {
    const int rest = bits - shift;
    const int width = rest == 8 ? 8 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
    const size_t per_line = static_cast<size_t>(8 / width);  // units that share 64 bytes
    const unsigned byte = plane[unit / per_line * 64 + lane];
    code |= ((byte >> (static_cast<size_t>(width) * (unit % per_line))) & ((1u << width) - 1u)) << shift;
    shift += width;
    plane += planar_code_bytes(head_dim, width);
  }
  return static_cast<uint8_t>(code);
}

}  // namespace varve::kernels::generic
