#pragma once
// One NaN in the cache: who must see it, and who must not.

#include "support.h"

namespace varve::attention::test {

/// Poisons K or V of one position of KV head 1 before the cache of `spec` is filled, pages in the tiers that
/// TestSequence::fill takes; rows that attend to it must be NaN in that head's query heads, all else finite. The
/// spec's heads are set here: 4 query heads over 2 KV heads of head_dim 64.
void check_poison(const kernels::Kernels& kernels, ClassSpec spec, const std::vector<int>& tiers, const char* name,
                  bool key, int poisoned, int past, int rows);

}  // namespace varve::attention::test
