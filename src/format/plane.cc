#include "format/plane.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace varve::format {
namespace {

/// row <- row turned by the angle of token t of a tile (back when inverse), through the table.
void turn_in_tile(const RotaryTable& rotary, int t, bool inverse, float* row) {
  const int pairs = rotary.pairs();
  const float* c = rotary.cos_in_tile() + t * pairs;
  const float* s = rotary.sin_in_tile() + t * pairs;
  const float direction = inverse ? -1.0f : 1.0f;
  for (int p = 0; p < pairs; ++p) {
    float& x = row[rotary.first(p)];
    float& y = row[rotary.second(p)];
    const float sine = direction * s[p];
    const float turned = x * c[p] - y * sine;
    y = x * sine + y * c[p];
    x = turned;
  }
}

constexpr float kHalfMax = 65504.0f;

/// Rows that hold more than f16 (or NaN) are lost in every format; the centre must not take the rest of the page along.
bool representable(const float* row, int n) {
  return std::all_of(row, row + n, [](float x) { return std::fabs(x) <= kHalfMax; });
}

void load_centre(const uint8_t* plane, int head_dim, float* u) {
  for (int d = 0; d < head_dim; ++d) {
    half_t h;
    std::memcpy(&h, plane + static_cast<size_t>(d) * sizeof(h), sizeof(h));
    u[d] = half_to_float(h);
  }
}

}  // namespace

PlaneLayout plane_layout(const LayerFormat& format, int head_dim, int page_tokens) {
  const KCodecInfo& k = k_codec(format.k);
  const VCodecInfo& v = v_codec(format.v);
  PlaneLayout layout;
  if (format.centre != Centre::kNone) {
    layout.k_header_bytes = align_up(static_cast<size_t>(head_dim) * sizeof(half_t), kCacheLine);
  }
  layout.k_tile_bytes = k.tile_bytes(head_dim);
  layout.v_tile_bytes = v.tile_bytes(head_dim);
  layout.tiles = page_tokens / kTileTokens;
  const size_t tiles = static_cast<size_t>(layout.tiles);
  layout.bytes = layout.k_header_bytes + tiles * (layout.k_tile_bytes + layout.v_tile_bytes);
  layout.payload_bytes = tiles * kTileTokens * static_cast<size_t>(head_dim) * static_cast<size_t>(k.bits + v.bits) / 8;
  return layout;
}

void write_centre(const LayerFormat& format, const HeadGeometry& geometry, const float* k_rows, int n, int offset,
                  uint8_t* plane) {
  if (format.centre == Centre::kNone) return;
  const int head_dim = geometry.head_dim;
  const bool turns = format.centre == Centre::kRotary;
  double sum[kMaxHeadDim] = {};
  int used = 0;
  // R(-(begin + t)) = R(-begin) R(-t): the table undoes the turn inside a run of 64 rows, one exact turn the rest.
  for (int begin = 0; begin < n; begin += kTileTokens) {
    float run[kMaxHeadDim] = {};
    for (int t = 0; t < std::min(kTileTokens, n - begin); ++t) {
      const float* source = k_rows + static_cast<size_t>(begin + t) * static_cast<size_t>(head_dim);
      if (!representable(source, head_dim)) continue;
      float row[kMaxHeadDim];
      std::copy_n(source, head_dim, row);
      if (turns) turn_in_tile(*geometry.rotary, t, true, row);
      for (int d = 0; d < head_dim; ++d) run[d] += row[d];
      ++used;
    }
    if (turns) geometry.rotary->turn(run, -(offset + begin));
    for (int d = 0; d < head_dim; ++d) sum[d] += static_cast<double>(run[d]);
  }
  for (int d = 0; d < head_dim; ++d) {
    // Undoing the turn can lengthen a coordinate by sqrt(2), so the mean may still need the bound.
    const double mean = used > 0 ? sum[d] / used : 0.0;
    const half_t h = float_to_half(std::clamp(static_cast<float>(mean), -kHalfMax, kHalfMax));
    std::memcpy(plane + static_cast<size_t>(d) * sizeof(h), &h, sizeof(h));
  }
}

void add_centre(const LayerFormat& format, const HeadGeometry& geometry, int tile, float sign, const uint8_t* plane,
                float* rows) {
  if (format.centre == Centre::kNone) return;
  const int head_dim = geometry.head_dim;
  const bool turns = format.centre == Centre::kRotary;
  float u[kMaxHeadDim];
  load_centre(plane, head_dim, u);
  if (turns) geometry.rotary->turn(u, tile * kTileTokens);
  for (int t = 0; t < kTileTokens; ++t) {
    float removed[kMaxHeadDim];
    std::copy_n(u, head_dim, removed);
    if (turns) turn_in_tile(*geometry.rotary, t, false, removed);
    float* row = rows + t * head_dim;
    for (int d = 0; d < head_dim; ++d) row[d] += sign * removed[d];
  }
}

void encode_tile(const LayerFormat& format, const HeadGeometry& geometry, const PlaneLayout& layout,
                 const EncodeOptions& options, int tile, const float* k_rows, const float* v_rows, float* scratch,
                 uint8_t* plane) {
  const size_t count = static_cast<size_t>(kTileTokens) * static_cast<size_t>(geometry.head_dim);
  const KCodecInfo& k = k_codec(format.k);
  const VCodecInfo& v = v_codec(format.v);

  std::copy_n(k_rows, count, scratch);
  add_centre(format, geometry, tile, -1.0f, plane, scratch);
  if (k.frame == Frame::kRotated) geometry.rotation->forward(scratch, kTileTokens);
  k.encode(scratch, geometry.head_dim, options, plane + layout.k_tile(tile));

  float* v_scratch = scratch + count;
  std::copy_n(v_rows, count, v_scratch);
  if (v.frame == Frame::kRotated) geometry.rotation->forward(v_scratch, kTileTokens);
  v.encode(v_scratch, geometry.head_dim, options, plane + layout.v_tile(tile));
}

void decode_tile(const LayerFormat& format, const HeadGeometry& geometry, const PlaneLayout& layout, int tile,
                 const uint8_t* plane, float* k_rows, float* v_rows) {
  if (k_rows != nullptr) {
    const KCodecInfo& k = k_codec(format.k);
    k.decode(plane + layout.k_tile(tile), geometry.head_dim, k_rows);
    if (k.frame == Frame::kRotated) geometry.rotation->inverse(k_rows, kTileTokens);
    add_centre(format, geometry, tile, 1.0f, plane, k_rows);
  }
  if (v_rows != nullptr) {
    const VCodecInfo& v = v_codec(format.v);
    v.decode(plane + layout.v_tile(tile), geometry.head_dim, v_rows);
    if (v.frame == Frame::kRotated) geometry.rotation->inverse(v_rows, kTileTokens);
  }
}

}  // namespace varve::format
