#pragma once
// The solving half: costs of layers and bytes of formats to a profile.

#include "eval/calibrate/calibrate.h"
#include "eval/calibrate/knapsack.h"
#include "eval/calibrate/price.h"

namespace varve::eval {

/// KL is quadratic in a small perturbation: one layer's costs are a sensitivity times the codecs' squared errors. What
/// a layer's own passages say of it (the mean of KL by error over codecs and passages) is joined by what the same codec
/// costs the average layer, which weighs as much as `prior_passages` of them: the posterior mean of a scale, of which
/// each passage is a draw. Layers with one format and layers with two have an average each. No codec comes out cheaper
/// than a finer one.
void fit_costs(std::span<LayerCosts> layers, double prior_passages);

/// Every layer's choice of codecs: an index into LayerCosts::k and ::v.
struct Assignment {
  std::vector<int> k, v;
};
/// The same index in every layer.
Assignment uniform_assignment(size_t layers, int k, int v);
Assignment coarsest_assignment(size_t layers);

/// The base profile in this shape with each layer's old pages, or all of its pages, in its own format.
Profile assemble(const Profile& base, const PageShape& shape, std::span<const LayerCosts> layers,
                 const Assignment& assignment);

/// All that the layers' costs allow in one page shape.
class Solver {
 public:
  static Result<Solver> create(const Profile& base, const PageShape& shape, std::span<const LayerCosts> layers,
                               const Price& price);

  struct Solution {
    Profile profile;
    double cost = 0;
    size_t physical_bytes = 0;  ///< as the engine counts them
  };
  std::optional<Solution> within_bytes(size_t physical_bytes) const;
  std::optional<Solution> within_cost(double cost) const;
  /// The same widths in every layer: those of docs/profiles.md's minima, or the first coarser ones that fit.
  std::optional<Solution> uniform_within_bytes(size_t physical_bytes) const;
  double least_cost() const { return front_.largest().cost; }

 private:
  Solver(Profile base, const PageShape& shape, std::span<const LayerCosts> layers, const Price& price,
         size_t base_bytes, KnapsackFront front)
      : base_(std::move(base)),
        shape_(shape),
        layers_(layers),
        price_(price),
        base_bytes_(base_bytes),
        front_(std::move(front)) {}
  std::optional<Solution> solution(const Assignment& assignment) const;
  std::optional<Solution> solution(const std::optional<KnapsackPoint>& point) const;

  Profile base_;
  PageShape shape_;
  std::span<const LayerCosts> layers_;
  Price price_;
  size_t base_bytes_;  ///< physical bytes when every codec is the coarsest; options count from there
  KnapsackFront front_;
};

}  // namespace varve::eval
