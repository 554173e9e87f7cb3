#pragma once
// The largest haystack that fits.

#include <functional>

namespace varve::eval {

/// The largest number of units in [0, max_units] whose tokens are at most `budget`, -1 when even 0 units have more. By
/// bisection, with guesses from the tokens of a unit so far: tokens_at is expensive and nearly linear. It should not
/// decrease; where it does, the result still fits.
int fit_units(int max_units, int budget, const std::function<int(int)>& tokens_at);

}  // namespace varve::eval
