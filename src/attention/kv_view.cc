#include "attention/kv_view.h"

namespace varve::attention {

using format::kTileTokens;

StripRows strip_rows(const format::StripLayout* layout, const format::LayerGeometry& layer, int ordinal, int kv_head,
                     uint8_t* strip) {
  if (!owns_strip(layout, ordinal)) return {};
  const auto at = static_cast<size_t>(ordinal);
  const auto head_dim = static_cast<size_t>(layer.head.head_dim);
  const auto head = static_cast<size_t>(kv_head);
  const auto rows = [&](size_t offset, int tokens) -> HalfRows {
    auto* k = reinterpret_cast<uint16_t*>(strip + offset);
    return {k, k + static_cast<size_t>(tokens) * head_dim};
  };
  return {.sinks = rows(layout->sink_offset[at] + head * layout->sink_head_bytes[at], layout->sink_tokens),
          .open = rows(layout->open_offset[at] + head * layout->open_head_bytes[at], kTileTokens)};
}

HalfRows scratch_tail(const SequenceState& sequence, const format::LayerGeometry& layer, int kv_head,
                      uint16_t* scratch) {
  const auto head_dim = static_cast<size_t>(layer.head.head_dim);
  const auto tokens = static_cast<size_t>(sequence.tail_tokens());
  const size_t before =
      sequence.tail_offset * static_cast<size_t>(layer.kv_heads) + tokens * static_cast<size_t>(kv_head);
  uint16_t* rows = scratch + 2 * head_dim * before;
  return {rows, rows + tokens * head_dim};
}

TileView HeadView::tile(int position) const {
  const auto head_dim = static_cast<size_t>(layer->head.head_dim);
  TileView view;
  if (has_tail && position >= sequence->tail_start) {
    const size_t at = static_cast<size_t>(position - sequence->tail_start) * head_dim;
    view.rows = {tail.k + at, tail.v + at};
    return view;
  }
  const std::vector<PageView>& pages = sequence->view.pages;
  const int offset = position - pages.front().start;
  const int page_tokens = pages.front().layout->page_tokens;
  const PageView& page = pages[static_cast<size_t>(offset / page_tokens)];
  const format::LayerSlot& slot = page.layout->layers[static_cast<size_t>(ordinal)];
  const int tile = offset % page_tokens / kTileTokens;
  if (slot.format.is_low_rank()) {
    view.block = {page.slot + slot.offset, format::block_shape(*layer, slot.format, page_tokens), kv_head};
    view.tile = tile;
    return view;
  }
  uint8_t* plane = page.slot + page.layout->plane(ordinal, kv_head);
  if (format::is_direct(slot.format) && slot.format.centre == format::Centre::kNone) {
    view.rows = {reinterpret_cast<uint16_t*>(plane + slot.plane.k_tile(tile)),
                 reinterpret_cast<uint16_t*>(plane + slot.plane.v_tile(tile))};
    return view;
  }
  view.codec = {&slot.format, &slot.plane, &layer->head, kernels};
  view.plane = plane;
  view.tile = tile;
  return view;
}

}  // namespace varve::attention
