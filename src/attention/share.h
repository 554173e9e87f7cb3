#pragma once
// Pages that several rows of a step read are read once: decode items of the same KV cut over the same slots become one
// item (docs/adr/0011-shared-pages-are-read-once.md).

#include "attention/kv_view.h"
#include "attention/schedule.h"

namespace varve::attention {

/// A joint item serves at most this many query heads, unless one unit alone has more.
inline constexpr int kMaxJointHeads = 4 * kernels::kMaxGroup;

/// The largest position p in [begin, end] such that rows of `a` and `b` read the same bytes at all positions of
/// [begin, p): the same slots, below both tails. A multiple of kTileTokens where `begin` and `end` are.
int shared_until(const SequenceState& a, const SequenceState& b, int begin, int end);

/// Joins decode items of `schedule`, which make_schedule made for the rows of `sequences`, and counts tiles.
void join_items(std::span<const SequenceState> sequences, Schedule* schedule);

}  // namespace varve::attention
