#pragma once
// The two ways to work off an item: decode (one row, few heads, codes read in place) and prefill (many rows, tiles
// decoded once and multiplied as matrices). Both write, for every (row, head) of their unit and cut,
//   m = max score, l = sum exp(score - m), o = sum exp(score - m) v
// in fp32 and the plain frame: the partial state of equations 6 and 11-13 of the mixed-format merge. m = -inf and l = 0
// where nothing was attended to.

#include "attention/kv_view.h"
#include "attention/schedule.h"

namespace varve::attention {

/// What every item of one layer of one step shares.
struct LayerStep {
  const format::LayerGeometry* layer = nullptr;
  int ordinal = 0;
  const kernels::Kernels* kernels = nullptr;
  const CentreCurve* curve = nullptr;  ///< null: no page of the class can have a rotary centre in this layer
  const PageTurn* turn = nullptr;      ///< null: no page of the class can have an un-rotated block in this layer
  const format::StripLayout* strip = nullptr;
  std::span<const SequenceState> sequences;
  const Schedule* schedule = nullptr;
  uint16_t* tail_scratch = nullptr;
  const float* q = nullptr;    ///< [rows][q_heads][head_dim]
  float* max = nullptr;        ///< [slots]
  float* sum = nullptr;        ///< [slots]
  float* out = nullptr;        ///< [slots][head_dim]
  float* tile_mass = nullptr;  ///< Unit::mass_row; null: no mass is collected in this layer
  const uint8_t* selected = nullptr;  ///< by Unit::selection, a flag a page; null: no unit is routed

  HeadView head(int sequence, int kv_head) const;
  /// Whether the unit attends to the tile at `position`: a page that the router left out is as if it were not there.
  bool attends(const Unit& unit, int position) const {
    if (unit.selection < 0) return true;
    const PageView& first = sequences[static_cast<size_t>(unit.sequence)].view.pages.front();
    return selected[unit.selection + (position - first.start) / first.layout->page_tokens] != 0;
  }
};

/// Buffers of one thread. Grows only; one object serves every layer.
class ThreadScratch {
 public:
  /// Decode buffers for every layer and for `item_heads` query heads (of joint items, of the router); prefill buffers too
  /// when `prefill`; those of low-rank pages where max_rank, the largest of the step, is not 0. False when memory was
  /// refused.
  bool reserve(std::span<const format::LayerGeometry> layers, bool prefill, int item_heads, int max_rank);
  /// Forgets which query is prepared and which block is decoded: the next layer brings other ones.
  void new_layer() {
    prepared_units = -1;
    blocks.forget();
  }

  size_t codec_bytes() const { return codec_.size() + codec_prefill_.size() + blocks.codec_bytes(); }
  size_t work_bytes() const { return work_.size() + work_prefill_.size() + blocks.work_bytes(); }

  BlockReader blocks;

  int prepared_units = -1;  ///< which units' heads q_plain holds: a unit, or a list of joint units behind all units
  bool coded_query_ready = false;  ///< the rotated copy and both sets of codes are of them, too
  // Decode: [heads][head_dim] unless said otherwise; heads: of all units of an item.
  float* q_plain = nullptr;
  float* q_rotated = nullptr;
  int16_t* codes_plain = nullptr;
  int16_t* codes_rotated = nullptr;
  float* step_plain = nullptr;    ///< [heads]
  float* step_rotated = nullptr;  ///< [heads]
  int32_t* sums_plain = nullptr;  ///< [heads] of the codes
  int32_t* sums_rotated = nullptr;
  float* acc_plain = nullptr;
  float* acc_rotated = nullptr;
  float* scores = nullptr;       ///< [segments of a cut][heads][kTileTokens]
  float* offsets = nullptr;      ///< [segments][heads]: to be added to the scores
  float* page_terms = nullptr;   ///< [heads][terms of the centre curve]
  float* centre = nullptr;       ///< [head_dim]
  float* tile_centre = nullptr;  ///< [head_dim]
  // Decoded tiles.
  float* k_rows = nullptr;  ///< [kTileTokens][head_dim]
  float* v_rows = nullptr;  ///< [kTileTokens][head_dim]
  // Prefill.
  float* q_block = nullptr;       ///< [rows of an item][head_dim]
  float* score_block = nullptr;   ///< [rows of an item][kKeyBlock]
  float* k_transposed = nullptr;  ///< [head_dim][kKeyBlock]
  float* v_block = nullptr;       ///< [kKeyBlock][head_dim]

 private:
  AlignedBuffer codec_, codec_prefill_, work_, work_prefill_;
};

/// Keys of one step of the prefill loop.
inline constexpr int kKeyBlock = 2 * format::kTileTokens;

void run_decode_item(const LayerStep& step, const Item& item, ThreadScratch& scratch);
void run_prefill_item(const LayerStep& step, const Item& item, ThreadScratch& scratch);

/// scores[i] <- cap * tanh(scores[i] / cap), absolute error below 1e-6 * cap. NaN stays NaN.
void apply_softcap(const kernels::Kernels& kernels, float cap, int n, float* scores);

/// Combines the cuts of `unit` in position order and writes its rows of out ([rows][q_heads][head_dim]).
void merge_unit(const LayerStep& step, const Unit& unit, float* out);

}  // namespace varve::attention
