#include "attention/mass.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace varve::attention {

using format::kTileTokens;

bool PageMass::plan(const MassRequest& request, std::span<const SequenceState> sequences,
                    std::span<const Schedule> schedules) {
  request_ = request;
  units_.clear();
  first_share_.clear();
  if (request.rows == 0) return true;
  first_share_.push_back(0);
  for (const SequenceState& state : sequences) first_share_.push_back(first_share_.back() + state.view.pages.size());
  size_t tiles = 0, sums = 0;
  for (const Schedule& schedule : schedules) {
    tiles = std::max(tiles, schedule.mass_floats);
    std::vector<UnitSums>& units = units_.emplace_back();
    for (const Unit& unit : schedule.units) {
      const size_t pages = unit.scored > 0 ? sequences[static_cast<size_t>(unit.sequence)].view.pages.size() : 0;
      units.push_back({.sequence = unit.sequence, .first = sums, .pages = pages});
      sums += pages;
    }
  }
  const auto fit = [](AlignedBuffer* buffer, size_t floats) {
    if (floats * sizeof(float) > buffer->size()) *buffer = AlignedBuffer(floats * sizeof(float));
    return floats == 0 || buffer->data() != nullptr;
  };
  if (!fit(&tiles_, tiles) || !fit(&sums_, sums) || !fit(&shares_, first_share_.back())) return false;
  std::fill_n(reinterpret_cast<float*>(sums_.data()), sums, 0.0f);
  return true;
}

void PageMass::add_unit(const LayerStep& step, size_t schedule, size_t index) {
  const Unit& unit = step.schedule->units[index];
  if (unit.scored == 0) return;
  UnitSums& to = units_[schedule][index];
  float* sums = reinterpret_cast<float*>(sums_.data()) + to.first;
  const std::vector<PageView>& pages = step.sequences[static_cast<size_t>(unit.sequence)].view.pages;
  const int page_tiles = pages.front().layout->page_tokens / kTileTokens;
  // A page may start before the first tile that anybody attends to, never after it.
  const int first_page_tile = pages.front().start / kTileTokens;
  const int group = step.schedule->shape.group;
  const size_t stride = static_cast<size_t>(unit.rows) * static_cast<size_t>(group);
  for (int i = 0; i < unit.scored * group; ++i) {
    float* tiles = step.tile_mass + unit.mass_row(i);
    const size_t first = unit.slot + static_cast<size_t>((unit.rows - unit.scored) * group + i);
    float max = -std::numeric_limits<float>::infinity();
    for (int c = 0; c < unit.cuts; ++c) max = std::max(max, step.max[first + static_cast<size_t>(c) * stride]);
    double total = 0, on_pages = 0;
    for (int c = 0; c < unit.cuts; ++c) {
      const size_t at = first + static_cast<size_t>(c) * stride;
      if (step.sum[at] == 0.0f) continue;  // its tiles hold zeros
      const float weight = std::exp(step.max[at] - max);
      total += static_cast<double>(weight * step.sum[at]);
      const TileRange range = unit.tiles_of_cut(c);
      for (int t = range.begin; t < range.end; ++t) {
        tiles[t] *= weight;
        on_pages += static_cast<double>(tiles[t]);
      }
    }
    // A NaN score makes the total NaN. The rest of such a row says nothing about pages.
    if (!std::isfinite(total) || !(on_pages > 0)) {
      ++to.skipped;
      continue;
    }
    const auto inverse = static_cast<float>(1.0 / on_pages);
    for (int t = 0; t < unit.tiles; ++t) {
      sums[(unit.first_tile + t - first_page_tile) / page_tiles] += tiles[t] * inverse;
    }
  }
}

std::span<const float> PageMass::shares(size_t sequence) {
  if (sequence + 1 >= first_share_.size()) return {};
  const size_t n = first_share_[sequence + 1] - first_share_[sequence];
  float* shares = reinterpret_cast<float*>(shares_.data()) + first_share_[sequence];
  std::fill_n(shares, n, 0.0f);
  for (const std::vector<UnitSums>& units : units_) {
    for (const UnitSums& unit : units) {
      if (static_cast<size_t>(unit.sequence) != sequence) continue;
      const float* sums = reinterpret_cast<const float*>(sums_.data()) + unit.first;
      for (size_t p = 0; p < unit.pages; ++p) shares[p] += sums[p];
    }
  }
  double total = 0;
  for (size_t p = 0; p < n; ++p) total += static_cast<double>(shares[p]);
  const auto inverse = static_cast<float>(total > 0 ? 1.0 / total : 0.0);
  for (size_t p = 0; p < n; ++p) shares[p] *= inverse;
  return {shares, n};
}

int PageMass::skipped(size_t sequence) const {
  int n = 0;
  for (const std::vector<UnitSums>& units : units_) {
    for (const UnitSums& unit : units) n += static_cast<size_t>(unit.sequence) == sequence ? unit.skipped : 0;
  }
  return n;
}

}  // namespace varve::attention
