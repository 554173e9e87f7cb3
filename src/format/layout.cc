#include "format/layout.h"

#include <cmath>
#include <string>

#include "format/page_header.h"

namespace varve::format {

Status check_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats, int page_tokens,
                    int sink_tokens) {
  if (layers.size() != formats.size()) {
    return invalid_argument(std::to_string(formats.size()) + " formats for " + std::to_string(layers.size()) +
                            " layers");
  }
  if (page_tokens <= 0 || page_tokens % kTileTokens != 0) {
    return invalid_argument("page_tokens " + std::to_string(page_tokens) + " is not a positive multiple of " +
                            std::to_string(kTileTokens));
  }
  if (sink_tokens < 0 || sink_tokens > kMaxSinkTokens) {
    return invalid_argument("sink_tokens " + std::to_string(sink_tokens) + " is not within 0.." +
                            std::to_string(kMaxSinkTokens));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerGeometry& g = layers[i];
    const LayerFormat& f = formats[i];
    const std::string where = "layer " + std::to_string(g.layer) + ": ";
    const int head_dim = g.head.head_dim;
    if (!head_dim_supported(head_dim)) {
      return unsupported(where + "head_dim " + std::to_string(head_dim) + " (supported: 64, 80, 96, 128, 192, 256)");
    }
    if (g.kv_heads <= 0 || g.q_heads <= 0 || g.q_heads % g.kv_heads != 0) {
      return invalid_argument(where + std::to_string(g.q_heads) + " query heads over " + std::to_string(g.kv_heads) +
                              " KV heads");
    }
    if (f.is_low_rank()) {
      if (Status status = check_block(block_shape(g, f, page_tokens)); !status.ok()) {
        return {status.code(), where + "format " + format_name(f) + ": " + status.message()};
      }
      if (!f.low_rank.rotated && (g.head.rotary == nullptr || g.head.rotary->head_dim() != head_dim)) {
        return invalid_argument(where + "format " + format_name(f) + " needs a rotary table of head_dim " +
                                std::to_string(head_dim));
      }
    }
    const bool rotates = k_codec(f.k).frame == Frame::kRotated || v_codec(f.v).frame == Frame::kRotated;
    if (rotates && (g.head.rotation == nullptr || g.head.rotation->head_dim() != head_dim)) {
      return invalid_argument(where + "format " + format_name(f) + " needs a rotation of head_dim " +
                              std::to_string(head_dim));
    }
    if (f.centre == Centre::kRotary) {
      const RotaryTable* table = g.head.rotary;
      if (table == nullptr || table->head_dim() != head_dim) {
        return invalid_argument(where + "centre rotary needs a rotary table of head_dim " + std::to_string(head_dim));
      }
      if (2 * table->pairs() > head_dim) {
        return invalid_argument(where + "n_rot " + std::to_string(2 * table->pairs()) + " is more than head_dim " +
                                std::to_string(head_dim));
      }
    }
  }
  return {};
}

SlotLayout slot_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
                       int page_tokens) {
  SlotLayout slot;
  slot.page_tokens = page_tokens;
  slot.header_bytes = sizeof(PageHeader);
  slot.bytes = slot.header_bytes;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (formats[i].is_low_rank()) {
      const BlockShape shape = block_shape(layers[i], formats[i], page_tokens);
      slot.layers.push_back({formats[i], {}, slot.bytes, block_bytes(shape)});
      slot.bytes += slot.layers.back().block_bytes;
      slot.payload_bytes += block_payload_bytes(shape);
      continue;
    }
    const PlaneLayout plane = plane_layout(formats[i], layers[i].head.head_dim, page_tokens);
    const size_t heads = static_cast<size_t>(layers[i].kv_heads);
    slot.layers.push_back({formats[i], plane, slot.bytes});
    slot.bytes += heads * plane.bytes;
    slot.payload_bytes += heads * plane.payload_bytes;
  }
  return slot;
}

StripLayout strip_layout(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& recent_formats,
                         int sink_tokens) {
  StripLayout strip;
  strip.sink_tokens = sink_tokens;
  const auto add_region = [&](int tokens, std::vector<size_t>* offset, std::vector<size_t>* head_bytes) {
    for (size_t i = 0; i < layers.size(); ++i) {
      const size_t row_bytes = 2 * static_cast<size_t>(layers[i].head.head_dim) * sizeof(half_t);  // K and V
      offset->push_back(strip.bytes);
      head_bytes->push_back(is_direct(recent_formats[i]) ? 0 : static_cast<size_t>(tokens) * row_bytes);
      strip.bytes += static_cast<size_t>(layers[i].kv_heads) * head_bytes->back();
    }
  };
  add_region(sink_tokens, &strip.sink_offset, &strip.sink_head_bytes);
  strip.sink_bytes = strip.bytes;  // whole cache lines: head_dim is a multiple of 16
  add_region(kTileTokens, &strip.open_offset, &strip.open_head_bytes);
  return strip;
}

}  // namespace varve::format
