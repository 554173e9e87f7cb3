#pragma once
// A confidence interval.

namespace varve::eval {

struct Interval {
  double lo = 0, hi = 0;
};

}  // namespace varve::eval
