#include "format/rotary.h"

#include <xxhash.h>

#include <cmath>

namespace varve::format {

RotaryTable::RotaryTable(std::vector<float> theta, int head_dim, bool neox)
    : head_dim_(head_dim), neox_(neox), theta_(std::move(theta)) {
  const size_t pairs = theta_.size();
  cos_.resize(kTileTokens * pairs);
  sin_.resize(kTileTokens * pairs);
  for (size_t t = 0; t < kTileTokens; ++t) {
    for (size_t p = 0; p < pairs; ++p) {
      const double angle = static_cast<double>(t) * static_cast<double>(theta_[p]);
      cos_[t * pairs + p] = static_cast<float>(std::cos(angle));
      sin_[t * pairs + p] = static_cast<float>(std::sin(angle));
    }
  }
  for (const float step : theta_) {
    const double angle = kTileTokens * static_cast<double>(step);
    cos_step_.push_back(static_cast<float>(std::cos(angle)));
    sin_step_.push_back(static_cast<float>(std::sin(angle)));
  }
  const uint64_t shape = static_cast<uint64_t>(head_dim_) << 1 | (neox_ ? 1u : 0u);
  fingerprint_ = XXH64(theta_.data(), pairs * sizeof(float), shape);
}

void RotaryTable::turn(float* row, int offset) const {
  for (int p = 0; p < pairs(); ++p) {
    const double angle = static_cast<double>(offset) * static_cast<double>(theta_[static_cast<size_t>(p)]);
    const double c = std::cos(angle), s = std::sin(angle);
    const double x = row[first(p)], y = row[second(p)];
    row[first(p)] = static_cast<float>(x * c - y * s);
    row[second(p)] = static_cast<float>(x * s + y * c);
  }
}

}  // namespace varve::format
