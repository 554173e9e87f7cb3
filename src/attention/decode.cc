// Decode: the query heads of a row's GQA group, or of several rows that read the same pages, against at most
// kDecodeCutTokens positions of one KV head. Scores of the whole cut come first, so the softmax needs no running
// rescale; values follow while the tiles are still cached.

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
  bool low_rank() const { return view.low_rank(); }
  /// f16 rows have scores for the attended tokens alone, coded and low-rank tiles for all 64 with -inf elsewhere.
  bool coded() const { return view.plane != nullptr || low_rank(); }
  int scores() const { return coded() ? kTileTokens : last - first; }
  bool masked() const { return coded() && (first > 0 || last < kTileTokens); }
};

constexpr int kMaxSegments = kDecodeCutTokens / kTileTokens + 1;

/// One item at work: segments in position order over the thread's buffers. A joint item serves several units: first
/// come the segments that all of them read, once for all heads, then each unit's own, which take the same places in the
/// buffers after one another. Every head meets the same operations in the same order as in an item of its own.
class DecodeItem {
 public:
  DecodeItem(const LayerStep& step, const Item& item, ThreadScratch& scratch)
      : step_(step),
        item_(item),
        scratch_(scratch),
        kernels_(*step.kernels),
        group_(step.schedule->shape.group),
        heads_(item.units * group_),
        head_dim_(step.layer->head.head_dim),
        cut_(unit(0).first_cut + item.cut) {
    new_queries();
    const int units = item.units == 1 ? item.unit : static_cast<int>(step.schedule->units.size()) + item.first_unit;
    if (scratch.prepared_units == units) return;
    scratch.prepared_units = units;
    scratch.coded_query_ready = false;
    float* to = scratch.q_plain;
    for (int u = 0; u < item.units; ++u) {
      const int row = state(u).view.row_begin + unit(u).first_row;
      const size_t first_head = static_cast<size_t>(row * step_.layer->q_heads + unit(u).kv_head * group_);
      const float* q = step_.q + at(first_head);
      for (size_t i = 0; i < at(group_); ++i) *to++ = q[i] * step_.layer->scale;
    }
  }

  void run() {
    if (item_.units > 1) find_segments(0, cut_begin(), item_.shared_end);
    shared_ = segments_;
    for (int s = 0; s < shared_; ++s) score(s, 0, item_.units);
    for (int u = 0; u < item_.units; ++u) {
      find_own_segments(u);
      for (int s = shared_; s < segments_; ++s) score(s, u, 1);
      for (int g = 0; g < group_; ++g) softmax(u, g);
    }
    std::memset(scratch_.acc_plain, 0, at(heads_) * sizeof(float));
    std::memset(scratch_.acc_rotated, 0, at(heads_) * sizeof(float));
    for (int s = 0; s < shared_; ++s) add_values(s, 0, item_.units);
    scratch_.blocks.finish_values(kernels_);
    for (int u = 0; u < item_.units; ++u) {
      if (item_.units > 1) find_own_segments(u);
      accumulate(u);
    }
  }

 private:
  const Unit& unit(int u) const {
    const int index =
        item_.units == 1 ? item_.unit : step_.schedule->joint_units[static_cast<size_t>(item_.first_unit + u)];
    return step_.schedule->units[static_cast<size_t>(index)];
  }
  const SequenceState& state(int u) const { return step_.sequences[static_cast<size_t>(unit(u).sequence)]; }
  int position(int u) const { return state(u).view.past + unit(u).first_row; }
  int cut_begin() const { return cut_ * kDecodeCutTokens; }

  /// What a segment's scores of one head lack: the part of a constant centre. The softmax adds it.
  float& offset(int segment, int head) const { return scratch_.offsets[static_cast<size_t>(segment * heads_ + head)]; }

  /// Scores of the item's heads [head, ...) in a segment.
  float* scores(int segment, int head) const {
    return scratch_.scores + static_cast<size_t>(segment * heads_ + head) * kTileTokens;
  }
  /// Offset of row `n` of an array of rows of head_dim.
  template <typename T>
  size_t at(T n) const {
    return static_cast<size_t>(n) * static_cast<size_t>(head_dim_);
  }
  size_t slot(int u, int g) const {
    return unit(u).slot + static_cast<size_t>((cut_ - unit(u).first_cut) * group_ + g);
  }

  /// What was computed of a page belongs to the heads it was computed for.
  void new_queries() {
    centre_plane_ = nullptr;
    scratch_.blocks.new_queries();
  }

  /// Rotates and quantises the heads' rows, once per (row, KV head) and thread, and only where a coded tile asks:
  /// a dense cache never comes here.
  void prepare_coded_query() {
    if (scratch_.coded_query_ready) return;
    scratch_.coded_query_ready = true;
    std::memcpy(scratch_.q_rotated, scratch_.q_plain, at(heads_) * sizeof(float));
    kernels_.rotate(scratch_.q_rotated, heads_, head_dim_, step_.layer->head.rotation->signs());
    kernels_.quantize_query(scratch_.q_plain, heads_, head_dim_, scratch_.codes_plain, scratch_.step_plain,
                            scratch_.sums_plain);
    kernels_.quantize_query(scratch_.q_rotated, heads_, head_dim_, scratch_.codes_rotated, scratch_.step_rotated,
                            scratch_.sums_rotated);
  }

  /// What unit u attends to beyond the shared segments.
  void find_own_segments(int u) {
    segments_ = shared_;
    new_queries();
    const int begin =
        item_.units > 1 ? item_.shared_end : std::max(cut_begin(), first_key(position(u), step_.layer->window));
    find_segments(u, begin, std::min(cut_begin() + kDecodeCutTokens, position(u) + 1));
  }

  /// Appends the segments of positions [begin, end) as unit u sees them.
  void find_segments(int u, int begin, int end) {
    const HeadView head = step_.head(unit(u).sequence, unit(u).kv_head);
    sink_tokens_ = head.sink_tokens;
    for (int tile = begin / kTileTokens * kTileTokens; tile < end; tile += kTileTokens) {
      if (!step_.attends(unit(u), tile)) continue;
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

  /// Calls work(first head, heads) over the heads of `units` units from `u` on, as many at once as kernels take.
  template <typename Work>
  void for_heads(int u, int units, const Work& work) const {
    const int most = std::max(1, kernels::kMaxGroup / group_);
    for (int done = 0; done < units; done += most) work((u + done) * group_, std::min(most, units - done) * group_);
  }

  void score(int s, int u, int units) {
    const Segment& segment = segment_[static_cast<size_t>(s)];
    std::fill_n(&offset(s, u * group_), units * group_, 0.0f);
    if (segment.low_rank()) {
      scratch_.blocks.score(kernels_, segment.view.block, segment.view.tile, step_.turn, group_, units,
                            scratch_.q_plain + at(u * group_), scores(s, u * group_));
    } else if (!segment.coded()) {
      for_heads(u, units, [&](int head, int heads) {
        kernels::QueryGroup query{heads, head_dim_, scratch_.q_plain + at(head)};
        if (head == u * group_) query.ahead = k_ahead(s + 1);
        kernels_.f16_scores(segment.view.rows.k + at(segment.first), segment.scores(), query, kTileTokens,
                            scores(s, head));
      });
    } else {
      const TileCodec& codec = segment.view.codec;
      prepare_coded_query();
      const bool rotated = format::k_codec(codec.format->k).frame == Frame::kRotated;
      const float* rows = rotated ? scratch_.q_rotated : scratch_.q_plain;
      const int16_t* codes = rotated ? scratch_.codes_rotated : scratch_.codes_plain;
      const float* steps = rotated ? scratch_.step_rotated : scratch_.step_plain;
      const int32_t* sums = rotated ? scratch_.sums_rotated : scratch_.sums_plain;
      const uint8_t* tile = segment.view.plane + codec.plane->k_tile(segment.view.tile);
      for_heads(u, units, [&](int head, int heads) {
        kernels::QueryGroup query{heads, head_dim_, rows + at(head), codes + at(head), steps + head, sums + head};
        if (head == u * group_) query.ahead = k_ahead(s + 1);
        kernels_.k_scores[static_cast<size_t>(codec.format->k)](tile, query, scores(s, head));
      });
      if (codec.format->centre != Centre::kNone) score_centre(s, u, units);
    }
    for (int h = u * group_; h < (u + units) * group_; ++h) {
      float* head = scores(s, h);
      if (step_.layer->softcap > 0) apply_softcap(kernels_, step_.layer->softcap, segment.scores(), head);
      if (!segment.masked()) continue;
      std::fill(head, head + segment.first, kMinusInfinity);
      std::fill(head + segment.last, head + kTileTokens, kMinusInfinity);
    }
  }

  /// Adds q.(removed part of k) to the scores of one coded tile.
  void score_centre(int s, int u, int units) {
    const Segment& segment = segment_[static_cast<size_t>(s)];
    const TileCodec& codec = segment.view.codec;
    const bool rotary = codec.format->centre == Centre::kRotary;
    const int terms = rotary ? step_.curve->terms() : 1;
    const int begin = u * group_, end = (u + units) * group_;
    const auto page_terms = [&](int h) {
      return scratch_.page_terms + static_cast<size_t>(h) * static_cast<size_t>(terms);
    };
    if (centre_plane_ != segment.view.plane) {
      centre_plane_ = segment.view.plane;
      if (rotary) {
        read_centre(codec, segment.view.plane, scratch_.centre);
        for (int h = begin; h < end; ++h) {
          step_.curve->page_terms(kernels_, scratch_.q_plain + at(h), scratch_.centre, page_terms(h));
        }
      } else {
        for_heads(u, units, [&](int head, int heads) {
          const kernels::QueryGroup query{heads, head_dim_, scratch_.q_plain + at(head)};
          kernels_.f16_scores(centre_row(segment.view.plane), 1, query, 1, page_terms(head));
        });
      }
    }
    if (!rotary) {
      for (int h = begin; h < end; ++h) {
        offset(s, h) = *page_terms(h);
        if (step_.layer->softcap <= 0) continue;
        float* head = scores(s, h);
        for (int t = 0; t < kTileTokens; ++t) head[t] += offset(s, h);
        offset(s, h) = 0;
      }
      return;
    }
    // Unit by unit: how a matrix product cuts its long sums may depend on its number of rows.
    for (int h = begin; h < end; h += group_) {
      step_.curve->add_to_scores(kernels_, group_, page_terms(h), segment.view.tile, scores(s, h));
    }
  }

  /// Scores of unit u's head g become weights; m and l of the cut are stored.
  void softmax(int u, int g) {
    const int h = u * group_ + g;
    float* mass = mass_row(u, g);
    if (mass != nullptr) {
      const TileRange range = unit(u).tiles_of_cut(cut_ - unit(u).first_cut);
      std::fill(mass + range.begin, mass + range.end, 0.0f);
    }
    float max = kMinusInfinity;
    bool broken = false;  // a NaN score: maxima may pass over it, sums do not
    for (int s = 0; s < segments_; ++s) {
      const float m = kernels_.max(scores(s, h), segment_[static_cast<size_t>(s)].scores()) + offset(s, h);
      if (m > max) max = m;
      broken |= std::isnan(m);
    }
    if (max == kMinusInfinity && !broken) {
      for (int s = 0; s < segments_ && !broken; ++s) {
        const float* x = scores(s, h);
        broken = std::any_of(x, x + segment_[static_cast<size_t>(s)].scores(), [](float v) { return std::isnan(v); });
      }
      if (!broken) {
        for (int s = 0; s < segments_; ++s) std::fill_n(scores(s, h), kTileTokens, 0.0f);
        step_.max[slot(u, g)] = kMinusInfinity;
        step_.sum[slot(u, g)] = 0;
        return;
      }
    }
    if (broken) max = std::numeric_limits<float>::quiet_NaN();
    float sum = 0;
    for (int s = 0; s < segments_; ++s) {
      const Segment& segment = segment_[static_cast<size_t>(s)];
      const float segment_sum = kernels_.exp_sum(scores(s, h), segment.scores(), max - offset(s, h));
      sum += segment_sum;
      if (mass != nullptr && !segment.sinks) {
        mass[segment.position / kTileTokens - unit(u).first_tile] = page_part(segment, scores(s, h), segment_sum);
      }
    }
    step_.max[slot(u, g)] = max;
    step_.sum[slot(u, g)] = broken ? max : sum;
  }

  /// Mass of unit u's head g by tile; null where none is collected.
  float* mass_row(int u, int g) const {
    return step_.tile_mass != nullptr && unit(u).scored > 0 ? step_.tile_mass + unit(u).mass_row(g) : nullptr;
  }

  /// A segment's sum without sinks: before the first tile is sealed they are rows of the tail.
  float page_part(const Segment& segment, const float* weights, float sum) const {
    const int sinks = sink_tokens_ - segment.position;
    if (segment.coded() || segment.first >= sinks) return sum;
    sum = 0;
    for (int t = sinks; t < segment.last; ++t) sum += weights[t - segment.first];
    return sum;
  }

  /// Adds unit u's own segments to what the shared ones left, and stores its heads.
  void accumulate(int u) {
    const size_t n = at(group_);
    float* acc = scratch_.acc_plain + at(u * group_);
    bool masked = false, turned = false;
    for (int s = 0; s < segments_; ++s) {
      const Segment& segment = segment_[static_cast<size_t>(s)];
      masked |= segment.masked();
      turned |= turns_values(segment);
      if (s >= shared_) add_values(s, u, 1);
    }
    scratch_.blocks.finish_values(kernels_);
    if (turned) finish_rotated(u);
    // Zero weight does not silence a NaN row (0 * NaN); if one shows, attended tokens alone are summed again.
    if (masked && !std::all_of(acc, acc + n, [](float x) { return std::isfinite(x); })) {
      std::memset(acc, 0, n * sizeof(float));
      std::memset(scratch_.acc_rotated + at(u * group_), 0, n * sizeof(float));
      for (int s = 0; s < segments_; ++s) {
        const Segment& segment = segment_[static_cast<size_t>(s)];
        segment.masked() && !segment.low_rank() ? add_attended_values(s, u) : add_values(s, u, 1);
      }
      scratch_.blocks.finish_values(kernels_);
      finish_rotated(u);
    }
    std::memcpy(step_.out + at(slot(u, 0)), acc, n * sizeof(float));
  }

  /// Turns unit u's rotated accumulators back and adds them to the plain ones.
  void finish_rotated(int u) {
    float* rotated = scratch_.acc_rotated + at(u * group_);
    float* plain = scratch_.acc_plain + at(u * group_);
    kernels_.unrotate(rotated, group_, head_dim_, step_.layer->head.rotation->signs());
    for (size_t i = 0; i < at(group_); ++i) plain[i] += rotated[i];
  }

  static bool turns_values(const Segment& segment) {
    return segment.view.plane != nullptr &&
           format::v_codec(segment.view.codec.format->v).frame == Frame::kRotated;
  }

  /// Those of low-rank tiles are gathered over their page and complete with the next segment of another, or with
  /// finish_values(): a page never straddles the end of the shared segments, so joint items add in the same order.
  void add_values(int s, int u, int units) {
    const Segment& segment = segment_[static_cast<size_t>(s)];
    if (segment.low_rank()) {
      scratch_.blocks.add_values(kernels_, segment.view.block, segment.view.tile, segment.first, segment.last, group_,
                                 units, scores(s, u * group_), scratch_.acc_plain + at(u * group_));
      return;
    }
    scratch_.blocks.finish_values(kernels_);
    if (!segment.coded()) {
      for_heads(u, units, [&](int head, int heads) {
        kernels_.f16_accumulate(segment.view.rows.v + at(segment.first), segment.scores(), head_dim_, heads,
                                kTileTokens, scores(s, head), scratch_.acc_plain + at(head));
      });
      return;
    }
    const TileCodec& codec = segment.view.codec;
    float* acc = turns_values(segment) ? scratch_.acc_rotated : scratch_.acc_plain;
    const uint8_t* tile = segment.view.plane + codec.plane->v_tile(segment.view.tile);
    const auto v = static_cast<size_t>(codec.format->v);
    for_heads(u, units, [&](int head, int heads) {
      if (kernels_.v_accumulate_ahead[v] != nullptr && head == u * group_) {
        kernels_.v_accumulate_ahead[v](tile, head_dim_, heads, scores(s, head), acc + at(head), v_ahead(s + 1));
      } else {
        kernels_.v_accumulate[v](tile, head_dim_, heads, scores(s, head), acc + at(head));
      }
    });
  }

  /// K of segment s, or what follows the last segment's scores: the first V.
  kernels::Ahead k_ahead(int s) const {
    if (s >= segments_) return v_ahead(0);
    const Segment& segment = segment_[static_cast<size_t>(s)];
    if (segment.low_rank()) return {};
    if (!segment.coded()) return rows_ahead(segment, segment.view.rows.k);
    const TileCodec& codec = segment.view.codec;
    // The first tile comes with the centre before it.
    const size_t begin = segment.view.tile == 0 ? 0 : codec.plane->k_tile(segment.view.tile);
    return {segment.view.plane + begin, codec.plane->k_tile(segment.view.tile + 1) - begin};
  }
  kernels::Ahead v_ahead(int s) const {
    if (s >= segments_) return {};
    const Segment& segment = segment_[static_cast<size_t>(s)];
    if (segment.low_rank()) return {};
    if (!segment.coded()) return rows_ahead(segment, segment.view.rows.v);
    const TileCodec& codec = segment.view.codec;
    return {segment.view.plane + codec.plane->v_tile(segment.view.tile), codec.plane->v_tile_bytes};
  }

  kernels::Ahead rows_ahead(const Segment& segment, const uint16_t* rows) const {
    return {reinterpret_cast<const uint8_t*>(rows + at(segment.first)), at(segment.scores()) * sizeof(uint16_t)};
  }

  void add_attended_values(int s, int u) {
    const Segment& segment = segment_[static_cast<size_t>(s)];
    scratch_.blocks.finish_values(kernels_);
    decode_v(segment.view.codec, segment.view.tile, segment.view.plane, scratch_.v_rows);
    for (int h = u * group_; h < (u + 1) * group_; ++h) {
      float* acc = scratch_.acc_plain + at(h);
      const float* p = scores(s, h);
      for (int t = segment.first; t < segment.last; ++t) {
        const float* v = scratch_.v_rows + at(t);
        for (int d = 0; d < head_dim_; ++d) acc[d] += p[t] * v[d];
      }
    }
  }

  const LayerStep& step_;
  const Item& item_;
  ThreadScratch& scratch_;
  const kernels::Kernels& kernels_;
  const int group_;
  const int heads_;
  const int head_dim_;
  const int cut_;  ///< absolute: positions [cut * kDecodeCutTokens, ...)
  std::array<Segment, kMaxSegments> segment_;
  int shared_ = 0;    ///< segments of all units come first
  int segments_ = 0;  ///< with those of the unit at work
  int sink_tokens_ = 0;
  const uint8_t* centre_plane_ = nullptr;  ///< whose centre page_terms hold
};

}  // namespace

void run_decode_item(const LayerStep& step, const Item& item, ThreadScratch& scratch) {
  DecodeItem(step, item, scratch).run();
}

}  // namespace varve::attention
