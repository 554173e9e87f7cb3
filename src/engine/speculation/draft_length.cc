#include "engine/speculation/draft_length.h"

#include <algorithm>

namespace varve::engine {
namespace {

/// Weight of one judged token in the moving average: a handful of wrong ones stop drafting.
constexpr double kStep = 1.0 / 8;
/// The average stays this close to the break-even, where it equals row_cost, so that one right guess after a pause
/// ends it.
constexpr double kFloor = 0.9;

}  // namespace

int DraftLength::best() const {
  if (row_cost_ == 0) return most_;
  int best = 0;
  double tokens = 1, power = 1, best_rate = 1;
  for (int n = 1; n <= most_; ++n) {
    power *= acceptance_;
    tokens += power;
    const double rate = tokens / (1 + n * row_cost_);
    if (rate > best_rate) {
      best_rate = rate;
      best = n;
    }
  }
  return best;
}

int DraftLength::next() {
  const int n = best();
  if (n > 0) {
    pause_ = wait_ = 0;
    return n;
  }
  if (pause_ == 0) pause_ = wait_ = 2;
  if (--wait_ > 0) return 0;
  pause_ = std::min(pause_ * 2, kLongestPause);
  wait_ = pause_;
  return 1;
}

void DraftLength::verified(int drafted, int accepted) {
  for (int i = 0; i < accepted; ++i) acceptance_ += kStep * (1 - acceptance_);
  if (accepted < drafted) acceptance_ -= kStep * acceptance_;  // what comes after a wrong token was not judged
  acceptance_ = std::max(acceptance_, kFloor * row_cost_);
}

}  // namespace varve::engine
