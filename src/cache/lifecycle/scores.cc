#include "cache/lifecycle/scores.h"

#include <algorithm>
#include <string>
#include <utility>

namespace varve::cache {

Status PageScores::observe(std::span<const BlockEntry> blocks, std::span<const float> mass, double decay) {
  if (mass.size() != blocks.size()) {
    return invalid_argument("attention mass for " + std::to_string(mass.size()) + " pages, the sequence has " +
                            std::to_string(blocks.size()));
  }
  constexpr float kRounding = 1e-3f;
  for (size_t i = 0; i < mass.size(); ++i) {
    if (!(mass[i] >= 0 && mass[i] <= 1 + kRounding)) {
      return invalid_argument("attention mass " + std::to_string(mass[i]) + " of the page at " +
                              std::to_string(blocks[i].start) + " is not a share");
    }
  }
  std::map<PageId, double> averages;
  for (size_t i = 0; i < mass.size(); ++i) {
    const auto old = averages_.find(blocks[i].page);
    averages[blocks[i].page] = decay * (old == averages_.end() ? 0 : old->second) + (1 - decay) * mass[i];
  }
  averages_ = std::move(averages);
  weight_ = decay * weight_ + (1 - decay);
  return {};
}

float PageScores::score(PageId page) const {
  const auto it = averages_.find(page);
  return it == averages_.end() ? 0.0f : static_cast<float>(it->second / weight_);
}

void PageScores::keep_only(std::span<const BlockEntry> blocks) {
  if (averages_.empty()) return;
  std::map<PageId, double> averages;
  for (const BlockEntry& b : blocks) {
    if (const auto it = averages_.find(b.page); it != averages_.end()) averages.insert(*it);
  }
  averages_ = std::move(averages);
}

void Marks::add(Span span) {
  std::erase_if(spans_, [&](const Span& s) {
    if (s.end < span.begin || s.begin > span.end) return false;
    span = {std::min(s.begin, span.begin), std::max(s.end, span.end)};
    return true;
  });
  spans_.insert(std::lower_bound(spans_.begin(), spans_.end(), span,
                                 [](const Span& a, const Span& b) { return a.begin < b.begin; }),
                span);
}

bool Marks::overlap(Span span) const {
  return std::any_of(spans_.begin(), spans_.end(),
                     [&](const Span& s) { return s.begin < span.end && span.begin < s.end; });
}

void Marks::cut(int length) {
  std::erase_if(spans_, [&](const Span& s) { return s.begin >= length; });
  if (!spans_.empty()) spans_.back().end = std::min(spans_.back().end, length);
}

}  // namespace varve::cache
