#include "eval/tasks/fit.h"

#include <algorithm>
#include <cstdint>

namespace varve::eval {

int fit_units(int max_units, int budget, const std::function<int(int)>& tokens_at) {
  constexpr int kFirstGuess = 32;
  const int base = tokens_at(0);
  if (base > budget) return -1;
  int fits = 0, fits_tokens = base, too_many = max_units + 1;
  int guess = std::min(kFirstGuess, max_units);
  for (int round = 0; too_many - fits > 1; ++round) {
    const int tokens = tokens_at(guess);
    if (tokens <= budget) {
      fits = guess;
      fits_tokens = tokens;
    } else {
      too_many = guess;
    }
    const int64_t unit = std::max<int64_t>(1, (int64_t{tokens} - base) / guess);
    int64_t next = fits + std::max<int64_t>(1, (budget - fits_tokens) / unit);
    // Guesses that creep along a curve are cut short by halving.
    if (round >= 4 && round % 2 == 0 && too_many <= max_units) next = (int64_t{fits} + too_many) / 2;
    guess = static_cast<int>(std::clamp<int64_t>(next, fits + 1, too_many - 1));
  }
  return fits;
}

}  // namespace varve::eval
