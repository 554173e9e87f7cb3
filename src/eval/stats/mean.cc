#include "eval/stats/mean.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "eval/random.h"
#include "eval/stats/quantile.h"

namespace varve::eval {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

MeanInterval paired_t(std::span<const double> differences, double confidence) {
  MeanInterval out;
  out.n = out.groups = static_cast<int64_t>(differences.size());
  out.interval = {-kInfinity, kInfinity};
  if (differences.empty()) return out;
  const double n = double(differences.size());
  out.mean = sum(differences) / n;
  if (differences.size() < 2) return out;
  double squares = 0;
  for (const double x : differences) squares += (x - out.mean) * (x - out.mean);
  const double half = student_t_quantile(0.5 + 0.5 * confidence, n - 1) * std::sqrt(squares / (n - 1) / n);
  out.interval = {out.mean - half, out.mean + half};
  return out;
}

MeanInterval cluster_bootstrap(std::span<const double> differences, std::span<const std::string> groups,
                               const BootstrapOptions& options) {
  assert(differences.size() == groups.size());
  std::map<std::string, std::vector<double>> members;
  for (size_t i = 0; i < differences.size(); ++i) members[groups[i]].push_back(differences[i]);

  struct Cluster {
    double sum = 0;
    int64_t n = 0;
  };
  std::vector<Cluster> clusters;
  Cluster all;
  for (auto& [name, values] : members) {
    std::sort(values.begin(), values.end());  // a sum in the order of the items would depend on it
    clusters.push_back({sum(values), static_cast<int64_t>(values.size())});
    all.sum += clusters.back().sum;
    all.n += clusters.back().n;
  }

  MeanInterval out;
  out.n = all.n;
  out.groups = static_cast<int64_t>(clusters.size());
  out.mean = all.n == 0 ? 0 : all.sum / double(all.n);
  out.interval = {-kInfinity, kInfinity};
  if (clusters.size() < 2 || options.resamples < 1) return out;

  Random random(options.seed);
  std::vector<double> means(static_cast<size_t>(options.resamples));
  for (double& mean : means) {
    Cluster drawn;
    for (size_t i = 0; i < clusters.size(); ++i) {
      const Cluster& c = random.pick(clusters);
      drawn.sum += c.sum;
      drawn.n += c.n;
    }
    mean = drawn.sum / double(drawn.n);
  }
  std::sort(means.begin(), means.end());
  // Ranks (R + 1) a / 2 from either end, counted from 1.
  const double tail = 0.5 * (1 - options.confidence) * (double(means.size()) + 1);
  const size_t rank = static_cast<size_t>(std::clamp(tail + 1e-9, 1.0, 0.5 * double(means.size()) + 0.5));
  out.interval = {means[rank - 1], means[means.size() - rank]};
  return out;
}

}  // namespace varve::eval
