// Decode: the query heads of one row's GQA group against at most kDecodeCutTokens positions of one KV head. Scores of
// the whole cut come first, so the softmax needs no running rescale; values follow while the tiles are still cached.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/items.h"

namespace varve::attention {
namespace {

using format::Centre;
using format::Frame;
using format::kTileTokens;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Consecutive tokens of one tile (or the sinks) and their scores.
struct Segment {
  TileView view;
  int first = 0;  ///< attended tokens [first, last) of the tile
  int last = 0;
  int position = 0;  ///< of the tile
  bool sinks = false;
  /// f16 rows have scores for the attended tokens alone, coded tiles for all 64 with -inf elsewhere.
  bool coded() const { return view.plane != nullptr; }
  int scores() const { return coded() ? kTileTokens : last - first; }
  bool masked() const { return coded() && (first > 0 || last < kTileTokens); }
};

constexpr int kMaxSegments = kDecodeCutTokens / kTileTokens + 1;

/// One item at work: segments in position order over the thread's buffers.
class DecodeItem {
 public:
  DecodeItem(const LayerStep& step, const Item& item, ThreadScratch& scratch)
      : step_(step),
        unit_(step.schedule->units[static_cast<size_t>(item.unit)]),
        cut_(item.cut),
        scratch_(scratch),
        kernels_(*step.kernels),
        group_(step.schedule->shape.group),
        head_dim_(step.layer->head.head_dim) {
    if (scratch.prepared_unit == item.unit) return;
    scratch.prepared_unit = item.unit;
    scratch.coded_query_ready = false;
    const int row = step_.sequences[static_cast<size_t>(unit_.sequence)].view.row_begin + unit_.first_row;
    const size_t first_head = static_cast<size_t>(row * step_.layer->q_heads + unit_.kv_head * group_);
    const float* q = step_.q + first_head * static_cast<size_t>(head_dim_);
    for (size_t i = 0; i < query_floats(); ++i) scratch.q_plain[i] = q[i] * step_.layer->scale;
  }

  void run() {
    find_segments();
    for (int s = 0; s < segments_; ++s) score(s);
    for (int g = 0; g < group_; ++g) softmax(g);
    accumulate();
  }

 private:
  float* scores(int segment) const {
    return scratch_.scores + static_cast<size_t>(segment * group_) * kTileTokens;
  }
  size_t slot(int g) const { return unit_.slot + static_cast<size_t>(cut_ * group_ + g); }

  size_t query_floats() const { return static_cast<size_t>(group_) * static_cast<size_t>(head_dim_); }

  /// Rotates and quantises the group's rows, once per (row, KV head) and thread, and only where a coded tile asks:
  /// a dense cache never comes here.
  void prepare_coded_query() {
    if (scratch_.coded_query_ready) return;
    scratch_.coded_query_ready = true;
    std::memcpy(scratch_.q_rotated, scratch_.q_plain, query_floats() * sizeof(float));
    kernels_.rotate(scratch_.q_rotated, group_, head_dim_, step_.layer->head.rotation->signs());
    kernels_.quantize_query(scratch_.q_plain, group_, head_dim_, scratch_.codes_plain, scratch_.step_plain);
    kernels_.quantize_query(scratch_.q_rotated, group_, head_dim_, scratch_.codes_rotated, scratch_.step_rotated);
  }

  void find_segments() {
    const HeadView head = step_.head(unit_.sequence, unit_.kv_head);
    sink_tokens_ = head.sink_tokens;
    const int position = head.sequence->view.past + unit_.first_row;
    const int cut_begin = (unit_.first_cut + cut_) * unit_.cut_tokens;
    const int begin = std::max(cut_begin, first_key(position, step_.layer->window));
    const int end = std::min(cut_begin + unit_.cut_tokens, position + 1);
    for (int tile = begin / kTileTokens * kTileTokens; tile < end; tile += kTileTokens) {
      int first = std::max(begin - tile, 0);
      const int last = std::min(end - tile, kTileTokens);
      const int sinks = head.sinks_in_tile(tile);
      if (first < sinks) {
        TileView rows;
        rows.rows = head.sinks;
        segment_[static_cast<size_t>(segments_++)] = {rows, first, std::min(sinks, last), tile, true};
        first = sinks;
      }
      if (first < last) segment_[static_cast<size_t>(segments_++)] = {head.tile(tile), first, last, tile, false};
    }
  }

  void score(int s) {
    const Segment& segment = segment_[static_cast<size_t>(s)];
    float* out = scores(s);
    const size_t skip = static_cast<size_t>(segment.first) * static_cast<size_t>(head_dim_);
    if (!segment.coded()) {
      const kernels::QueryGroup query{group_, head_dim_, scratch_.q_plain, nullptr, nullptr};
      kernels_.f16_scores(segment.view.rows.k + skip, segment.scores(), query, kTileTokens, out);
    } else {
      const TileCodec& codec = segment.view.codec;
      prepare_coded_query();
      const kernels::QueryGroup query =
          format::k_codec(codec.format->k).frame == Frame::kRotated
              ? kernels::QueryGroup{group_, head_dim_, scratch_.q_rotated, scratch_.codes_rotated, scratch_.step_rotated}
              : kernels::QueryGroup{group_, head_dim_, scratch_.q_plain, scratch_.codes_plain, scratch_.step_plain};
      kernels_.k_scores[static_cast<size_t>(codec.format->k)](
          segment.view.plane + codec.plane->k_tile(segment.view.tile), query, out);
      if (codec.format->centre != Centre::kNone) score_centre(segment, out);
    }
    for (int g = 0; g < group_; ++g) {
      float* head = out + g * kTileTokens;
      if (step_.layer->softcap > 0) apply_softcap(kernels_, step_.layer->softcap, segment.scores(), head);
      if (!segment.masked()) continue;
      std::fill(head, head + segment.first, kMinusInfinity);
      std::fill(head + segment.last, head + kTileTokens, kMinusInfinity);
    }
  }

  /// Adds q.(removed part of k) to the scores of one coded tile.
  void score_centre(const Segment& segment, float* out) {
    const TileCodec& codec = segment.view.codec;
    const bool rotary = codec.format->centre == Centre::kRotary;
    const int terms = rotary ? step_.curve->terms() : 1;
    if (centre_plane_ != segment.view.plane) {
      centre_plane_ = segment.view.plane;
      read_centre(codec, segment.view.plane, scratch_.centre);
      for (int g = 0; g < group_; ++g) {
        const float* q = scratch_.q_plain + static_cast<size_t>(g) * static_cast<size_t>(head_dim_);
        float* page = scratch_.page_terms + static_cast<size_t>(g) * static_cast<size_t>(terms);
        if (rotary) {
          step_.curve->page_coefficients(q, scratch_.centre, page);
        } else {
          float dot = 0;
          for (int d = 0; d < head_dim_; ++d) dot += q[d] * scratch_.centre[d];
          *page = dot;
        }
      }
    }
    if (!rotary) {
      for (int g = 0; g < group_; ++g) {
        for (int t = 0; t < kTileTokens; ++t) out[g * kTileTokens + t] += scratch_.page_terms[g];
      }
      return;
    }
    step_.curve->add_to_scores(kernels_, group_, scratch_.page_terms, segment.view.tile, scratch_.curve, out);
  }

  /// Scores of head g become weights; m and l of the cut are stored.
  void softmax(int g) {
    float* mass = mass_row(g);
    if (mass != nullptr) {
      const TileRange range = unit_.tiles_of_cut(cut_);
      std::fill(mass + range.begin, mass + range.end, 0.0f);
    }
    float max = kMinusInfinity;
    bool broken = false;  // a NaN score: maxima may pass over it, sums do not
    for (int s = 0; s < segments_; ++s) {
      const float m = kernels_.max(scores(s) + g * kTileTokens, segment_[static_cast<size_t>(s)].scores());
      if (m > max) max = m;
      broken |= std::isnan(m);
    }
    if (max == kMinusInfinity && !broken) {
      for (int s = 0; s < segments_ && !broken; ++s) {
        const float* x = scores(s) + g * kTileTokens;
        broken = std::any_of(x, x + segment_[static_cast<size_t>(s)].scores(), [](float v) { return std::isnan(v); });
      }
      if (!broken) {
        for (int s = 0; s < segments_; ++s) std::fill_n(scores(s) + g * kTileTokens, kTileTokens, 0.0f);
        step_.max[slot(g)] = kMinusInfinity;
        step_.sum[slot(g)] = 0;
        return;
      }
    }
    if (broken) max = std::numeric_limits<float>::quiet_NaN();
    float sum = 0;
    for (int s = 0; s < segments_; ++s) {
      const Segment& segment = segment_[static_cast<size_t>(s)];
      float* weights = scores(s) + g * kTileTokens;
      const float segment_sum = kernels_.exp_sum(weights, segment.scores(), max);
      sum += segment_sum;
      if (mass != nullptr && !segment.sinks) {
        mass[segment.position / kTileTokens - unit_.first_tile] = page_part(segment, weights, segment_sum);
      }
    }
    step_.max[slot(g)] = max;
    step_.sum[slot(g)] = broken ? max : sum;
  }

  /// Mass of head g by tile; null where none is collected.
  float* mass_row(int g) const {
    return step_.tile_mass != nullptr && unit_.scored > 0 ? step_.tile_mass + unit_.mass_row(g) : nullptr;
  }

  /// A segment's sum without sinks: before the first tile is sealed they are rows of the tail.
  float page_part(const Segment& segment, const float* weights, float sum) const {
    const int sinks = sink_tokens_ - segment.position;
    if (segment.coded() || segment.first >= sinks) return sum;
    sum = 0;
    for (int t = sinks; t < segment.last; ++t) sum += weights[t - segment.first];
    return sum;
  }

  void accumulate() {
    const size_t n = query_floats();
    bool masked = false, turned = false;
    std::memset(scratch_.acc_plain, 0, n * sizeof(float));
    std::memset(scratch_.acc_rotated, 0, n * sizeof(float));
    for (int s = 0; s < segments_; ++s) {
      const Segment& segment = segment_[static_cast<size_t>(s)];
      masked |= segment.masked();
      turned |= segment.coded() && format::v_codec(segment.view.codec.format->v).frame == Frame::kRotated;
      add_values(segment, scores(s));
    }
    if (turned) finish_rotated(n);
    // Zero weight does not silence a NaN row (0 * NaN); if one shows, attended tokens alone are summed again.
    if (masked && !std::all_of(scratch_.acc_plain, scratch_.acc_plain + n, [](float x) { return std::isfinite(x); })) {
      std::memset(scratch_.acc_plain, 0, n * sizeof(float));
      std::memset(scratch_.acc_rotated, 0, n * sizeof(float));
      for (int s = 0; s < segments_; ++s) {
        const Segment& segment = segment_[static_cast<size_t>(s)];
        segment.masked() ? add_attended_values(segment, scores(s)) : add_values(segment, scores(s));
      }
      finish_rotated(n);
    }
    std::memcpy(step_.out + slot(0) * static_cast<size_t>(head_dim_), scratch_.acc_plain, n * sizeof(float));
  }

  /// Turns the rotated accumulators back and adds them to the plain ones.
  void finish_rotated(size_t n) {
    kernels_.unrotate(scratch_.acc_rotated, group_, head_dim_, step_.layer->head.rotation->signs());
    for (size_t i = 0; i < n; ++i) scratch_.acc_plain[i] += scratch_.acc_rotated[i];
  }

  void add_values(const Segment& segment, const float* p) {
    if (!segment.coded()) {
      const size_t skip = static_cast<size_t>(segment.first) * static_cast<size_t>(head_dim_);
      kernels_.f16_accumulate(segment.view.rows.v + skip, segment.scores(), head_dim_, group_, kTileTokens, p,
                              scratch_.acc_plain);
      return;
    }
    const TileCodec& codec = segment.view.codec;
    const bool turned = format::v_codec(codec.format->v).frame == Frame::kRotated;
    kernels_.v_accumulate[static_cast<size_t>(codec.format->v)](
        segment.view.plane + codec.plane->v_tile(segment.view.tile), head_dim_, group_, p,
        turned ? scratch_.acc_rotated : scratch_.acc_plain);
  }

  void add_attended_values(const Segment& segment, const float* p) {
    decode_v(segment.view.codec, segment.view.tile, segment.view.plane, scratch_.v_rows);
    for (int g = 0; g < group_; ++g) {
      float* acc = scratch_.acc_plain + static_cast<size_t>(g) * static_cast<size_t>(head_dim_);
      for (int t = segment.first; t < segment.last; ++t) {
        const float* v = scratch_.v_rows + static_cast<size_t>(t) * static_cast<size_t>(head_dim_);
        for (int d = 0; d < head_dim_; ++d) acc[d] += p[g * kTileTokens + t] * v[d];
      }
    }
  }

  const LayerStep& step_;
  const Unit& unit_;
  const int cut_;
  ThreadScratch& scratch_;
  const kernels::Kernels& kernels_;
  const int group_;
  const int head_dim_;
  std::array<Segment, kMaxSegments> segment_;
  int segments_ = 0;
  int sink_tokens_ = 0;
  const uint8_t* centre_plane_ = nullptr;  ///< whose centre page_terms hold
};

}  // namespace

void run_decode_item(const LayerStep& step, const Item& item, ThreadScratch& scratch) {
  DecodeItem(step, item, scratch).run();
}

}  // namespace varve::attention
