#pragma once
// The table of page codecs. A page format is a pair: one K codec and one V codec. A codec sees rows of one KV
// head in its own frame and knows nothing of pages, tiers or models; centring and rotation happen outside
// (format/plane.h), so adding a codec adds one folder and one line in codec.cc.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::format {

/// Tokens per tile. A tile is the unit of encoding and of attention; pages are whole tiles.
inline constexpr int kTileTokens = 64;

/// Supported head dims, all multiples of 16.
inline constexpr std::array<int, 6> kHeadDims = {64, 80, 96, 128, 192, 256};
inline constexpr int kMaxHeadDim = 256;

enum class KCodec : uint8_t { kF16, kFp8, kInt8, kTq6, kTq5, kTq4, kTq3, kTq2, kCount };
enum class VCodec : uint8_t { kF16, kFp8, kInt8, kTq4, kTq3, kTq2, kCount };

/// What is removed from K before coding and added back exactly at read time (FORMAT.md of tq, section "Centre").
enum class Centre : uint8_t {
  kNone,    ///< nothing
  kPost,    ///< the page mean of the keys as they are (after RoPE)
  kRotary,  ///< the page mean taken before RoPE, turned to each token's position
};

/// How the exact rows of a low-rank page are stored.
enum class RowCodec : uint8_t { kInt8, kInt4, kF16 };

/// Most tokens of a low-rank page; a rank and a number of exact rows stay below it.
inline constexpr int kMaxLowRankTokens = 1024;

/// A page stored as an anchor row, a joint low-rank K|V delta and exact rows (FORMAT.md of lr).
struct LowRank {
  int rank = 0;  ///< most singular directions; 0: no low-rank format
  int rows = 0;  ///< exact rows at that rank; a page that needs fewer directions spends their bytes on more rows
  RowCodec row_codec = RowCodec::kInt8;
  bool rotated = false;  ///< keys as attention uses them; else turned back to the page's first position before coding
  bool operator==(const LowRank&) const = default;
};

/// How one layer's K and V of one page are stored: by a pair of tile codecs, or, when low_rank.rank > 0, as a low-rank
/// block of all KV heads together (k, v and centre then keep their defaults).
struct LayerFormat {
  KCodec k = KCodec::kF16;
  VCodec v = VCodec::kF16;
  Centre centre = Centre::kNone;
  LowRank low_rank = {};
  bool is_low_rank() const { return low_rank.rank > 0; }
  bool operator==(const LayerFormat&) const = default;
};

/// The frame a codec's rows live in: f16 keeps rows as they are, all others are turned by format::Rotation.
enum class Frame : uint8_t { kPlain, kRotated };

/// How low-rank blocks are made (FORMAT.md of lr). None of it is needed to read one.
struct LowRankOptions {
  double energy = 0.9999;  ///< least share of the delta's energy that directions keep, up to the format's rank
  int least_rank = 4;      ///< fewer only where the delta has fewer directions, or lost rows take their bytes
  uint64_t seed = 1234;    ///< of the sketch
  int oversample = 5;      ///< sketch width beyond the rank, at least; the width is rounded up to 16
  int power_iterations = 2;
  /// Of a row's error: by how much more it counts where it is the largest of its tile, so that no part of the page is
  /// left without exact rows because another is worse.
  float coverage_bonus = 0.25f;
  /// Of a row's error: by how much more it counts where the directions make its key the same as the one before it.
  float edge_bonus = 0.25f;
  /// Digest of what else decides which rows are exact (content/traits.h); 0: nothing.
  uint64_t selection = 0;
  bool operator==(const LowRankOptions&) const = default;
};

/// Options that reach the encoders and are recorded in the codec fingerprint.
struct EncodeOptions {
  /// K norm correction: false = matched norm |k|/|c|, true = inner product |k|^2/<k,c> (docs/adr/0004).
  bool inner_product_norm = true;
  LowRankOptions low_rank = {};
};

struct KCodecInfo {
  KCodec id;
  const char* name;  ///< "f16", "fp8", "int8", "k4" ...
  int bits;          ///< code width
  Frame frame;
  /// Bytes of one tile of one KV head. Multiple of kCacheLine for every supported head_dim.
  size_t (*tile_bytes)(int head_dim);
  /// rows: [kTileTokens][head_dim] fp32, centred, in `frame`. Fewer than kTileTokens tokens are padded with zero rows.
  /// A row that holds NaN or infinity, or whose scale f16 cannot hold, decodes to NaN in all its dims and never touches
  /// other rows. f16 keeps every element as it is instead.
  void (*encode)(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
  /// Scalar reference. rows: [kTileTokens][head_dim] fp32 in `frame`.
  void (*decode)(const uint8_t* tile, int head_dim, float* rows);
};

struct VCodecInfo {
  VCodec id;
  const char* name;
  int bits;
  Frame frame;
  size_t (*tile_bytes)(int head_dim);
  void (*encode)(const float* rows, int head_dim, const EncodeOptions& options, uint8_t* tile);
  void (*decode)(const uint8_t* tile, int head_dim, float* rows);
};

const KCodecInfo& k_codec(KCodec id);
const VCodecInfo& v_codec(VCodec id);

/// Is head_dim one of kHeadDims?
bool head_dim_supported(int head_dim);

/// Parses "f16", "fp8", "int8" (both sides), "k<K>v<V>" with K in {f16,fp8,8,6,5,4,3,2} and V in {f16,fp8,8,4,3,2} (8
/// is int8), or "lr<rank>+<exact rows>[/int4|/f16][/rotated]". The error lists what is valid. An f16 K keeps its rows
/// as they are, and a low-rank page has its anchor, so that their centre becomes kNone.
Result<LayerFormat> parse_format(std::string_view name, Centre centre);
/// Inverse of parse_format, the shortest name; the centre is not part of it.
std::string format_name(const LayerFormat& format);
Result<Centre> parse_centre(std::string_view name);  ///< "none", "post", "rotary"
const char* centre_name(Centre centre);

/// f16 rows are written in place, token by token; every other format is written tile by tile from an f16 open tile.
inline bool is_direct(const LayerFormat& f) {
  return f.k == KCodec::kF16 && f.v == VCodec::kF16 && f.centre == Centre::kNone && !f.is_low_rank();
}

}  // namespace varve::format
