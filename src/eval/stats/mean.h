#pragma once
// Intervals of a mean of paired differences: Student's t for independent pairs, the cluster bootstrap for pairs that
// share a haystack or document.

#include <cstdint>
#include <span>
#include <string>

#include "eval/stats/interval.h"

namespace varve::eval {

struct MeanInterval {
  int64_t n = 0;       ///< differences
  int64_t groups = 0;  ///< clusters; n for the t interval
  double mean = 0;
  Interval interval;  ///< infinite ends when fewer than two independent observations were given
};

/// mean +- t(n - 1) * s / sqrt(n).
MeanInterval paired_t(std::span<const double> differences, double confidence = 0.95);

struct BootstrapOptions {
  uint64_t seed = 1;
  int resamples = 9999;
  double confidence = 0.95;
};

/// Percentile interval of the mean of `differences` when whole groups are drawn with replacement, as many as there are
/// (Davison and Hinkley, "Bootstrap Methods and their Application", section 3.8). groups[i] is the cluster of
/// differences[i]; the order of the items does not matter. The same seed gives the same interval on every platform.
MeanInterval cluster_bootstrap(std::span<const double> differences, std::span<const std::string> groups,
                               const BootstrapOptions& options = {});

}  // namespace varve::eval
