#pragma once
// Re-encodes one layer of one sealed page from one tier's layout into another's: decode, new centre or new basis,
// encode. Units of work for one thread each; any order, any interleaving with reads of src.
//
// src and dst are whole slots. The first `exact_tokens` rows of the page (the sinks of page 0, in layers that own a
// strip; else 0) are read from their exact strip by attention and so carry no weight in the centre or basis.

#include "attention/lowrank.h"
#include "format/layout.h"
#include "format/lr/encode.h"
#include "kernels/cpu/kernels.h"

namespace varve::attention {

/// Converts the planes of `kv_head` of layer ordinal `ordinal`. scratch: convert_scratch_floats() floats.
void convert_plane(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                   const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                   const kernels::Kernels& kernels, int ordinal, int kv_head, int exact_tokens, const uint8_t* src,
                   uint8_t* dst, float* scratch);
size_t convert_scratch_floats(int head_dim, int page_tokens);

/// Converts the layer, all its KV heads, from planes of at least 8 bits into a low-rank block. turn: of the layer's
/// rotary table and the page's tiles; null when it does not rotate. scratch: block_scratch_floats() floats.
format::BlockReport convert_to_block(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                                     const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                                     const format::TokenTraits& traits, const kernels::Kernels& kernels,
                                     const PageTurn* turn, int ordinal, int exact_tokens, const uint8_t* src,
                                     uint8_t* dst, float* scratch);
size_t block_scratch_floats(const format::LayerGeometry& geometry, const format::LowRank& format, int page_tokens,
                            const format::EncodeOptions& options);

/// Converts what a low-rank block holds of `kv_head` into planes: lossy, as nothing brings back what the block left
/// out. reader: reserved for the block's rank. scratch: convert_scratch_floats() floats.
void convert_from_block(const format::LayerGeometry& geometry, const format::SlotLayout& src_layout,
                        const format::SlotLayout& dst_layout, const format::EncodeOptions& options,
                        const kernels::Kernels& kernels, const PageTurn* turn, int ordinal, int kv_head,
                        int exact_tokens, const uint8_t* src, uint8_t* dst, BlockReader& reader, float* scratch);

/// The block of layer `ordinal` in a slot, as `kv_head` reads it.
BlockHead block_head(const format::LayerGeometry& geometry, const format::SlotLayout& layout, int ordinal, int kv_head,
                     const uint8_t* slot);

}  // namespace varve::attention
