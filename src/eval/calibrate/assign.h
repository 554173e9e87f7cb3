#pragma once
// The solving half: costs of layers and bytes of formats to a profile.

#include "eval/calibrate/calibrate.h"
#include "eval/calibrate/knapsack.h"
#include "eval/calibrate/price.h"

namespace varve::eval {

/// Costs of the codecs that were not measured, from the measured one with the nearest error; then none is cheaper than
/// a finer one, which only noise could make it. At least one codec must have been measured.
void complete_costs(std::vector<CodecCost>& costs);

/// Every layer's choice of codecs: an index into LayerCosts::k and ::v.
struct Assignment {
  std::vector<int> k, v;
};

/// The base profile in this shape with each layer's old pages in its own format and centre.
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
    size_t physical_bytes = 0;
  };
  std::optional<Solution> within_bytes(size_t physical_bytes) const;
  std::optional<Solution> within_cost(double cost) const;
  double least_cost() const { return front_.largest().cost; }

 private:
  Solver(Profile base, const PageShape& shape, std::span<const LayerCosts> layers, size_t base_bytes,
         KnapsackFront front)
      : base_(std::move(base)), shape_(shape), layers_(layers), base_bytes_(base_bytes), front_(std::move(front)) {}
  std::optional<Solution> solution(const std::optional<KnapsackPoint>& point) const;

  Profile base_;
  PageShape shape_;
  std::span<const LayerCosts> layers_;
  size_t base_bytes_;  ///< physical bytes when every codec is the coarsest; options count from there
  KnapsackFront front_;
};

}  // namespace varve::eval
