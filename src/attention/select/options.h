#pragma once
// What the router is asked to do (docs/profiles.md says what the numbers mean to a user), and what it did.

#include <cstdint>

namespace varve::attention {

struct RouteOptions {
  int pages = 0;            ///< most pages that a selection names; 0: no router, every row attends to all pages
  int from_tokens = 0;      ///< rows that see fewer tokens than this, themselves included, attend to all pages
  int window_tokens = 512;  ///< every row attends to the page of each of its last so many tokens
  int reroute_steps = 1;    ///< one-row steps that share a selection, the one that made it included
  bool prefill = false;     ///< sequences that bring more than kDecodeRows rows are routed as well
};

/// Of one step, summed over the layers and KV heads of a class without a window. Tokens are counted once per row: a row
/// at position p has p + 1 of them in its context.
struct RouteStats {
  uint64_t selections = 0;       ///< made
  uint64_t reused = 0;           ///< taken over from an earlier step
  uint64_t pages_scored = 0;     ///< to make them
  uint64_t pages_skipped = 0;    ///< by routed units
  uint64_t tiles_skipped = 0;    ///< of these pages, by decode units
  uint64_t decode_tokens = 0;    ///< in the context of decode rows, routed or not
  uint64_t decode_attended = 0;  ///< of these, attended to
  uint64_t prefill_tokens = 0;   ///< in the context of prefill rows, routed or not
  uint64_t prefill_attended = 0;
};

}  // namespace varve::attention
