#pragma once
// Where a step's new rows go: f16 rows in append(), whole tiles into pages and the rest into the open tile at merge().

#include "attention/items.h"

namespace varve::attention {

/// Writes this thread's share of the step's new rows. k, v: [rows][kv_heads][head_dim].
/// Layers without a strip write into their pages; the others into the sink rows and the tail, which also takes over the
/// open tile's rows when it lies in the scratch.
void append_rows(const LayerStep& step, const float* k, const float* v, int thread, int threads);

/// A part of one sequence's tail that one thread moves, for one KV head each.
struct SealJob {
  int sequence = 0;
  int first = 0;      ///< position, multiple of kTileTokens
  int last = 0;       ///< position past the end
  bool whole = true;  ///< whole tiles of one page, to be encoded; else the rest, to be copied to the open tile
};
/// Jobs of one KV head of a layer with a strip. Jobs of different pages touch nothing in common.
std::vector<SealJob> seal_jobs(std::span<const SequenceState> sequences, int page_tokens);

void run_seal_job(const LayerStep& step, const SealJob& job, int kv_head, const format::EncodeOptions& options,
                  ThreadScratch& scratch);

}  // namespace varve::attention
