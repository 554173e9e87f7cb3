#include "format/lr/select.h"

#include <algorithm>

namespace varve::format {
namespace {

/// A run, or a row that belongs to none.
struct Unit {
  int begin, end;
  bool is_run, asked;
  int rows;     ///< that it takes
  float score;  ///< mean over them
};

class Selector {
 public:
  Selector(const RowCandidates& candidates, const TokenTraits& traits, const LowRankOptions& options)
      : candidates_(candidates), traits_(traits), options_(options), taken_(candidates.state.size()) {}

  RowSelection select(int budget) {
    int left = budget;
    for (size_t t = 0; t < taken_.size(); ++t) {
      taken_[t] = candidates_.state[t] == RowState::kLost;
      left -= taken_[t];
    }
    for (const Unit& unit : ordered_units()) {
      if (unit.rows > left) {
        if (unit.is_run) ++selection_.runs_left_out;
        continue;
      }
      left -= unit.rows;
      if (unit.is_run) selection_.rows_of_runs += unit.rows;
      for (int t = unit.begin; t < unit.end; ++t) {
        if (is_free(t)) taken_[static_cast<size_t>(t)] = true;
      }
    }
    for (size_t t = 0; t < taken_.size(); ++t) {
      if (taken_[t]) selection_.rows.push_back(static_cast<uint16_t>(t));
    }
    return std::move(selection_);
  }

 private:
  bool is_free(int t) const { return candidates_.state[static_cast<size_t>(t)] == RowState::kFree; }

  float score(int t) const {
    const size_t i = static_cast<size_t>(t);
    const float boost = traits_.boost.empty() ? 1.0f : traits_.boost[i];
    return boost * candidates_.error[i] * (1.0f + options_.edge_bonus * candidates_.collision[i]);
  }

  Unit unit(int begin, int end, bool is_run, bool asked) const {
    Unit u{begin, end, is_run, asked, 0, 0};
    for (int t = begin; t < end; ++t) {
      if (!is_free(t)) continue;
      ++u.rows;
      u.score += score(t);
    }
    if (u.rows > 0) u.score /= static_cast<float>(u.rows);
    return u;
  }

  std::vector<Unit> units() const {
    std::vector<Unit> all;
    const auto add = [&](const Unit& u) {
      if (u.rows > 0 && u.score > 0) all.push_back(u);
    };
    const int tokens = static_cast<int>(taken_.size());
    int t = 0;
    for (const TokenRun& run : traits_.runs) {
      const int begin = std::clamp(run.begin, t, tokens), end = std::clamp(run.end, begin, tokens);
      for (; t < begin; ++t) add(unit(t, t + 1, false, false));
      add(unit(begin, end, true, run.asked));
      t = end;
    }
    for (; t < tokens; ++t) add(unit(t, t + 1, false, false));
    return all;
  }

  std::vector<Unit> ordered_units() const {
    std::vector<Unit> all = units();
    // Units are in token order here, so those that begin in one tile are neighbours.
    for (size_t i = 0; i < all.size();) {
      const int tile = all[i].begin / kTileTokens;
      size_t best = i;
      for (; i < all.size() && all[i].begin / kTileTokens == tile; ++i) {
        if (all[i].score > all[best].score) best = i;
      }
      all[best].score *= 1.0f + options_.coverage_bonus;
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Unit& a, const Unit& b) { return a.asked != b.asked ? a.asked : a.score > b.score; });
    return all;
  }

  const RowCandidates& candidates_;
  const TokenTraits& traits_;
  const LowRankOptions& options_;
  std::vector<uint8_t> taken_;
  RowSelection selection_;
};

}  // namespace

RowSelection select_rows(const RowCandidates& candidates, const TokenTraits& traits, const LowRankOptions& options,
                         int budget) {
  return Selector(candidates, traits, options).select(budget);
}

}  // namespace varve::format
