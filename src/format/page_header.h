#pragma once
// The fixed header of every slot. It makes a page describe itself wherever it rests: a page that comes back from the
// host, a disk or another machine is installed only if its header agrees with what the reader expects, byte for byte.
// Inside one process pages are trusted; the header is written when a page seals or is converted.

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "format/layout.h"

namespace varve::format {

inline constexpr uint32_t kPageMagic = 0x50525656;  ///< "VVRP" in memory
inline constexpr uint16_t kCodecVersion = 1;        ///< of all codecs together: what the bytes of a tile mean
inline constexpr uint16_t kLayoutId = 1;            ///< of docs/adr/0005-tile-layout.md: where in a tile they are

/// Digest of the tokens that determine the page: all from the sequence's start to the page's end.
using TokenDigest = std::array<uint8_t, 32>;

/// Little-endian, as every machine Varve runs on.
struct PageHeader {
  uint32_t magic;
  uint16_t codec_version;
  uint16_t layout_id;
  uint32_t page_tokens;
  uint32_t page_start;   ///< position of the first token; rotary centres make pages position-bound
  uint64_t fingerprint;  ///< page_fingerprint()
  uint64_t generation;
  TokenDigest token_digest;
  uint64_t slot_bytes;
  uint64_t body_checksum;    ///< XXH3-64 of the slot after the header
  uint8_t reserved[40];      ///< zero
  uint64_t header_checksum;  ///< XXH3-64 of the bytes before it
};
static_assert(sizeof(PageHeader) == 128 && sizeof(PageHeader) % kCacheLine == 0);
static_assert(std::endian::native == std::endian::little, "pages are stored little-endian");

/// What tells one page from another that has the same layout.
struct PageIdentity {
  uint32_t start = 0;
  uint64_t fingerprint = 0;
  uint64_t generation = 0;
  TokenDigest token_digest{};
};

/// xxhash64 over everything that changes what the bytes of a page mean or how they were made: per layer its index,
/// heads, head_dim, format, centre, rotation seed and rotary fingerprint, then the encode options (those of low-rank
/// blocks only where there are any).
uint64_t page_fingerprint(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                          const EncodeOptions& options);

/// Writes the header of a slot whose planes are complete. slot: layout.bytes.
void write_page_header(const SlotLayout& layout, const PageIdentity& identity, uint8_t* slot);

/// Compares a slot that came from elsewhere with what the reader expects. kCorrupt names the first field that differs,
/// with both values.
Status verify_page(const SlotLayout& layout, const PageIdentity& expected, std::span<const uint8_t> slot);

}  // namespace varve::format
