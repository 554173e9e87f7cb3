#pragma once
// The kld suite: every arm reads the same text, teacher-forced, in lockstep with the dense arm.

#include "eval/run/team.h"

namespace varve::eval {

/// First position compared. Mode B: after a quarter of the text, at most 1,024 tokens, when early pages are compressed;
/// mode A: the last quarter, at most 512 tokens, which is read after the pages were compressed.
int first_compared(Mode mode, int length);

/// Runs the arms `todo` (indices into the options' arms) over the slice and stores their records. The reference arms
/// that they are compared with run too.
Status run_slice(Team& team, const Slice& slice, const std::vector<size_t>& todo);

/// Tokens that run_slice() will count.
int64_t slice_tokens(const EvalOptions& options, const Slice& slice, const std::vector<size_t>& todo);

}  // namespace varve::eval
