#pragma once
// Re-encodes one layer of one sealed page from one tier's layout into another's: decode, new centre, encode.

#include "format/layout.h"
#include "kernels/cpu/kernels.h"

namespace varve::attention {

/// Converts the planes of `kv_head` of layer ordinal `ordinal`. src and dst are whole slots. The first `exact_tokens`
/// rows of the page (the sinks of page 0, in layers that own a strip; else 0) are read from their exact strip by
/// attention and so carry no weight in the centre.
/// scratch: convert_scratch_floats() floats. A unit of work for one thread; any order, any interleaving with reads of src.
void convert_plane(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                   const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                   const kernels::Kernels& kernels, int ordinal, int kv_head, int exact_tokens,
                   const uint8_t* src, uint8_t* dst, float* scratch);
size_t convert_scratch_floats(int head_dim, int page_tokens);

}  // namespace varve::attention
