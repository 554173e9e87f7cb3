#pragma once
// Where the layers of a page sit inside a slot: one SlotLayout per (attention class, tier), computed from the profile.

#include <vector>

#include "format/lr/block.h"
#include "format/plane.h"

namespace varve::format {

/// Geometry of one KV-owning layer as the page formats and attention see it.
struct LayerGeometry {
  int layer = 0;  ///< the model's layer index
  int q_heads = 0;
  int kv_heads = 0;
  HeadGeometry head;
  float scale = 0;    ///< multiplies q.k
  float softcap = 0;  ///< 0: none, else cap * tanh(score / cap)
  int window = 0;     ///< 0: full attention, else keys at positions > query - window

  int group() const { return q_heads / kv_heads; }
};

/// The block of one layer in a low-rank format.
inline BlockShape block_shape(const LayerGeometry& layer, const LayerFormat& format, int page_tokens) {
  return {page_tokens, layer.kv_heads, layer.head.head_dim, format.low_rank};
}

struct LayerSlot {
  LayerFormat format;
  PlaneLayout plane;       ///< of one KV head; empty for low-rank formats
  size_t offset = 0;       ///< of this layer's kv_heads planes, or of its block, inside the slot
  size_t block_bytes = 0;  ///< of the block of all KV heads in a low-rank format, else 0
};

/// Layout of one slot: the page header, then every layer of an attention class, head-major inside a layer, low-rank
/// layers as one block.
struct SlotLayout {
  int page_tokens = 0;
  size_t header_bytes = 0;        ///< of the PageHeader every slot starts with (format/page_header.h)
  std::vector<LayerSlot> layers;  ///< by ordinal within the class, not by model layer index
  size_t bytes = 0;
  size_t payload_bytes = 0;  ///< codes alone; bytes - payload is metadata and padding

  /// Not for low-rank layers.
  size_t plane(int ordinal, int kv_head) const {
    const LayerSlot& l = layers[static_cast<size_t>(ordinal)];
    return l.offset + static_cast<size_t>(kv_head) * l.plane.bytes;
  }
};

/// kInvalidArgument or kUnsupported, with the numbers, for what slot_layout, strip_layout or an encoder cannot serve.
Status check_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats, int page_tokens,
                    int sink_tokens);

/// formats: one per layer of the class, same order as `layers`. page_tokens: multiple of kTileTokens. Arguments that
/// check_layout refuses must not get here.
SlotLayout slot_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                       int page_tokens);

/// The exact (f16) strip of one sequence in one class. First the sink rows (the sequence's `sink_tokens` first) of all
/// layers, then the open tiles of all layers, so that the sinks are one region that can be copied without knowing what
/// is in it. In both regions, per layer and KV head: K rows, then V rows, each [tokens][head_dim] f16.
/// Layers in a direct (f16) format own no strip; when no layer needs one, bytes is 0.
inline constexpr int kMaxSinkTokens = 16;
struct StripLayout {
  int sink_tokens = 0;                  ///< at most kMaxSinkTokens
  std::vector<size_t> sink_offset;      ///< of a layer's sink rows, by ordinal
  std::vector<size_t> sink_head_bytes;  ///< sink rows of one KV head
  std::vector<size_t> open_offset;      ///< of a layer's open tiles, by ordinal; counted from the strip's start
  std::vector<size_t> open_head_bytes;  ///< open tile of one KV head; 0 where the layer owns no strip
  size_t sink_bytes = 0;                ///< the sink rows are bytes [0, sink_bytes) of the strip
  size_t bytes = 0;
};
StripLayout strip_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& recent_formats,
                         int sink_tokens);

}  // namespace varve::format
