#pragma once
// The dense cache's distributions over some positions, kept so that many arms can be compared with them fast.

#include <cstdint>
#include <span>
#include <vector>

namespace varve::eval {

struct ArmDivergence {
  double kl = 0;        ///< mean KL(dense || arm), nats
  double same_top = 0;  ///< share of positions, 0..1
};

/// Of each position, the tokens that dense gives a probability of kLeast or more; the others, together less than the
/// vocabulary times that, are left out of both distributions. Sums have no cancelling terms, so a KL of 1e-9 is still a
/// number and not rounding.
class DenseReference {
 public:
  static constexpr double kLeast = 1e-8;

  /// logits: [positions][vocabulary].
  DenseReference(std::span<const float> logits, size_t vocabulary);
  size_t positions() const { return rows_.size(); }
  /// logits: of the same positions.
  ArmDivergence compare(std::span<const float> logits) const;

 private:
  struct Row {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    std::vector<double> p;  ///< sums to 1
    int32_t top = 0;
  };
  size_t vocabulary_;
  std::vector<Row> rows_;
};

}  // namespace varve::eval
