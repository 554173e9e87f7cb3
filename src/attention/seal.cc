#include "attention/seal.h"

#include <algorithm>
#include <cstring>

namespace varve::attention {
namespace {

using format::Centre;
using format::kTileTokens;

struct Range {
  int begin, end;
};

/// This thread's share of n.
Range share(int n, int thread, int threads) {
  const auto cut = [&](int i) { return static_cast<int>(static_cast<int64_t>(n) * i / threads); };
  return {cut(thread), cut(thread + 1)};
}

void copy_row(const HalfRows& from, int from_row, const HalfRows& to, int to_row, int head_dim) {
  const auto n = static_cast<size_t>(head_dim);
  const size_t bytes = n * sizeof(uint16_t);
  std::memcpy(to.k + static_cast<size_t>(to_row) * n, from.k + static_cast<size_t>(from_row) * n, bytes);
  std::memcpy(to.v + static_cast<size_t>(to_row) * n, from.v + static_cast<size_t>(from_row) * n, bytes);
}

}  // namespace

void append_rows(const LayerStep& step, const float* k, const float* v, int thread, int threads) {
  const int kv_heads = step.layer->kv_heads;
  const int head_dim = step.layer->head.head_dim;
  const auto n = static_cast<size_t>(head_dim);
  const auto write = [&](const SequenceState& state, int position, int kv_head, const HalfRows& to, int to_row) {
    const size_t row = static_cast<size_t>(state.view.row_begin + position - state.view.past);
    const size_t from = (row * static_cast<size_t>(kv_heads) + static_cast<size_t>(kv_head)) * n;
    step.kernels->f32_to_f16(k + from, to.k + static_cast<size_t>(to_row) * n, n);
    step.kernels->f32_to_f16(v + from, to.v + static_cast<size_t>(to_row) * n, n);
  };
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceState& state = step.sequences[s];
    const bool strip = owns_strip(step.strip, step.ordinal);
    const int begin = strip && !state.tail_in_strip ? state.tail_start : state.view.past;
    const Range mine = share((state.end() - begin) * kv_heads, thread, threads);
    for (int i = mine.begin; i < mine.end; ++i) {
      const int position = begin + i / kv_heads, kv_head = i % kv_heads;
      const HeadView head = step.head(static_cast<int>(s), kv_head);
      if (!strip) {
        const int tile = position / kTileTokens * kTileTokens;
        write(state, position, kv_head, head.tile(tile).rows, position - tile);
        continue;
      }
      const int tail_row = position - state.tail_start;
      if (position < state.view.past) {
        const StripRows rows = strip_rows(step.strip, *step.layer, step.ordinal, kv_head, state.view.strip);
        copy_row(rows.open, tail_row, head.tail, tail_row, head_dim);
        continue;
      }
      write(state, position, kv_head, head.tail, tail_row);
      if (position < head.sink_tokens) copy_row(head.tail, tail_row, head.sinks, position, head_dim);
    }
  }
}

std::vector<SealJob> seal_jobs(std::span<const SequenceState> sequences, int page_tokens) {
  std::vector<SealJob> jobs;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceState& state = sequences[s];
    const int sealed = state.end() / kTileTokens * kTileTokens;
    for (int first = state.tail_start; first < sealed;) {
      const int last = std::min(sealed, (first / page_tokens + 1) * page_tokens);
      jobs.push_back({static_cast<int>(s), first, last, true});
      first = last;
    }
    if (!state.tail_in_strip && sealed < state.end()) jobs.push_back({static_cast<int>(s), sealed, state.end(), false});
  }
  return jobs;
}

void run_seal_job(const LayerStep& step, const SealJob& job, int kv_head, const format::EncodeOptions& options,
                  ThreadScratch& scratch) {
  const HeadView head = step.head(job.sequence, kv_head);
  const SequenceState& state = *head.sequence;
  const int head_dim = step.layer->head.head_dim;
  if (!job.whole) {
    const StripRows strip = strip_rows(step.strip, *step.layer, step.ordinal, kv_head, state.view.strip);
    for (int i = job.first; i < job.last; ++i) {
      copy_row(head.tail, i - state.tail_start, strip.open, i - job.first, head_dim);
    }
    return;
  }
  const std::vector<PageView>& pages = state.view.pages;
  const int page_tokens = pages.front().layout->page_tokens;
  const PageView& page = pages[static_cast<size_t>((job.first - pages.front().start) / page_tokens)];
  const format::LayerSlot& slot = page.layout->layers[static_cast<size_t>(step.ordinal)];
  const TileCodec codec{&slot.format, &slot.plane, &step.layer->head, step.kernels};
  uint8_t* plane = page.slot + page.layout->plane(step.ordinal, kv_head);
  for (int position = job.first; position < job.last; position += kTileTokens) {
    const int tile = (position - page.start) / kTileTokens;
    const size_t from = static_cast<size_t>(position - state.tail_start) * static_cast<size_t>(head_dim);
    const size_t n = static_cast<size_t>(kTileTokens) * static_cast<size_t>(head_dim);
    step.kernels->f16_to_f32(head.tail.k + from, scratch.k_rows, n);
    step.kernels->f16_to_f32(head.tail.v + from, scratch.v_rows, n);
    if (slot.format.centre != Centre::kNone) {
      if (tile == 0) {
        // Sinks are read from the strip, so they carry no weight in the centre.
        const int exact = position == 0 ? head.sink_tokens : 0;
        CentreMean mean(slot.format.centre, step.layer->head.rotary, head_dim);
        mean.add_tile(scratch.k_rows + static_cast<size_t>(exact) * static_cast<size_t>(head_dim), exact,
                      kTileTokens - exact);
        mean.finish(scratch.centre);
        store_centre(codec, scratch.centre, plane);
      }
      read_centre(codec, plane, scratch.centre);
      if (slot.format.centre == Centre::kRotary) {
        step.curve->turn(scratch.centre, tile, scratch.tile_centre);
      } else {
        std::memcpy(scratch.tile_centre, scratch.centre, static_cast<size_t>(head_dim) * sizeof(float));
      }
    }
    encode_k(codec, options, tile, scratch.tile_centre, scratch.k_rows, plane);
    encode_v(codec, options, tile, scratch.v_rows, plane);
  }
}

}  // namespace varve::attention
