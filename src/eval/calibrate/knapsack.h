#pragma once
// One option of every item, so that bytes and costs add up to as little as possible.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace varve::eval {

struct KnapsackOption {
  int64_t bytes = 0;
  double cost = 0;
};

struct KnapsackPoint {
  int64_t bytes = 0;
  double cost = 0;
  std::vector<int> choice;  ///< by item: index of its option
};

/// Every choice of one option per item that no other choice beats in both bytes and cost: exact, by dynamic programming
/// over the items with dominated sums dropped. Items without options are refused by an empty front.
class KnapsackFront {
 public:
  explicit KnapsackFront(std::span<const std::vector<KnapsackOption>> items);

  /// Least cost within the bytes; the fewest bytes of those. Nothing when even the smallest choice is larger.
  std::optional<KnapsackPoint> within_bytes(int64_t bytes) const;
  /// Fewest bytes within the cost. Nothing when even the largest choice costs more.
  std::optional<KnapsackPoint> within_cost(double cost) const;
  bool empty() const { return steps_.empty() || steps_.back().empty(); }
  KnapsackPoint smallest() const { return point(0); }
  KnapsackPoint largest() const { return point(steps_.back().size() - 1); }

 private:
  struct State {
    int64_t bytes;
    double cost;
    uint32_t previous;  ///< index among the states of the item before
    int option;
  };
  KnapsackPoint point(size_t state) const;
  std::vector<std::vector<State>> steps_;  ///< by item; ascending bytes, descending cost
};

}  // namespace varve::eval
