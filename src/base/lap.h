#pragma once
// Splits the time of a caller that may or may not want to know it.

#include "base/clock.h"

namespace varve {

/// Adds the time since the last lap to a member of *sums. With null sums no clock is read.
template <typename Sums>
class Lap {
 public:
  explicit Lap(Sums* sums) : sums_(sums), last_(sums != nullptr ? now_s() : 0) {}
  void operator()(double Sums::*part) {
    if (sums_ == nullptr) return;
    const double now = now_s();
    sums_->*part += now - last_;
    last_ = now;
  }
  /// What passed since the last lap has been counted elsewhere.
  void skip() {
    if (sums_ != nullptr) last_ = now_s();
  }

 private:
  Sums* sums_;
  double last_;
};

}  // namespace varve
