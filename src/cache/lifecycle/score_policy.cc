#include "cache/lifecycle/score_policy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace varve::cache {
namespace {

Status bad(const char* name, double value, const char* why) {
  return invalid_argument(std::string("score policy: ") + name + " " + std::to_string(value) + " " + why);
}

}  // namespace

Status ScorePolicy::validate(const Options& o) {
  if (o.recent_tokens < 0) return bad("recent_tokens", o.recent_tokens, "is negative");
  if (o.anchor_tokens < 0) return bad("anchor_tokens", o.anchor_tokens, "is negative");
  const std::pair<const char*, double> numbers[] = {{"weight_score", o.weight_score},   {"weight_age", o.weight_age},
                                                    {"weight_shared", o.weight_shared}, {"enter_ratio", o.enter_ratio},
                                                    {"least_score", o.least_score},     {"leave_score", o.leave_score}};
  for (const auto& [name, value] : numbers) {
    if (!std::isfinite(value) || value < 0) return bad(name, value, "is not a number of at least 0");
  }
  if (o.weight_score + o.weight_age + o.weight_shared <= 0)
    return bad("weight_score", o.weight_score, "and no other weight");
  if (o.enter_ratio < 1) return bad("enter_ratio", o.enter_ratio, "is below 1");
  if (o.least_score < o.leave_score) return bad("least_score", o.least_score, "is below leave_score");
  return {};
}

void ScorePolicy::decide(std::span<const PageFeatures> pages, std::span<Wish> wishes) const {
  for (size_t i = 0; i < pages.size(); ++i) wishes[i] = {pages[i].tier, "keep"};
  compete(pages, wishes);
  for (size_t i = 0; i < pages.size(); ++i) {
    const PageFeatures& p = pages[i];
    const bool stale = p.tier == Tier::kStale1 || p.tier == Tier::kStale2;
    if (!p.relieving) continue;
    // The values computed above stay: the controller orders anchors by them.
    wishes[i].tier = p.sealed && !stale && p.has(Tier::kStale1) ? Tier::kStale1 : p.tier;
    wishes[i].why = wishes[i].tier == p.tier ? "keep" : "pressure";
  }
}

void ScorePolicy::compete(std::span<const PageFeatures> pages, std::span<Wish> wishes) const {
  std::vector<size_t> competing;
  double observed = 0, best = 0;
  int oldest = 1;
  for (size_t i = 0; i < pages.size(); ++i) {
    const PageFeatures& p = pages[i];
    observed += p.score;
    if (!p.sealed) continue;
    if (p.marked && p.has(Tier::kAnchor)) {
      wishes[i] = {Tier::kAnchor, p.tier == Tier::kAnchor ? "keep" : "marked", 1};
      continue;
    }
    const bool stale = p.tier == Tier::kStale1 || p.tier == Tier::kStale2;
    if (!p.has(Tier::kStale1) || (!stale && p.age_tokens < options_.recent_tokens)) continue;
    competing.push_back(i);
    best = std::max(best, static_cast<double>(p.score));
    oldest = std::max(oldest, p.age_tokens);
  }
  if (competing.empty()) return;

  const Options& o = options_;
  for (const size_t i : competing) {
    const PageFeatures& p = pages[i];
    const double score = best > 0 ? p.score / best : 0;
    const double recency = 1 - static_cast<double>(p.age_tokens) / oldest;
    wishes[i].value = (o.weight_score * score + o.weight_age * recency + o.weight_shared * (p.shared ? 1 : 0)) /
                      (o.weight_score + o.weight_age + o.weight_shared);
  }
  // Ties go to the earlier page, so equal values cannot swap places.
  std::stable_sort(competing.begin(), competing.end(),
                   [&](size_t a, size_t b) { return wishes[a].value > wishes[b].value; });

  const double uniform = 1.0 / static_cast<double>(pages.size());
  std::vector<size_t> anchors, outside;  // strongest first
  for (const size_t i : competing) {
    const PageFeatures& p = pages[i];
    if (p.tier != Tier::kAnchor) {
      outside.push_back(i);
    } else if (p.dwelling || observed == 0 || p.score >= o.leave_score * uniform) {
      anchors.push_back(i);
    } else {
      wishes[i].tier = Tier::kStale1, wishes[i].why = "faded";
    }
  }
  const size_t places = static_cast<size_t>(o.anchor_tokens / pages[competing[0]].tokens);
  size_t taken = anchors.size();
  // The anchor that goes next; `anchors` loses those that cannot go as they are met.
  const auto weakest = [&] {
    while (!anchors.empty() && pages[anchors.back()].dwelling) anchors.pop_back();
    return !anchors.empty();
  };
  const auto leave = [&] {
    wishes[anchors.back()].tier = Tier::kStale1, wishes[anchors.back()].why = "faded";
    anchors.pop_back();
    --taken;
  };
  while (taken > places && weakest()) leave();
  for (const size_t i : outside) {
    const PageFeatures& p = pages[i];
    bool enters = p.has(Tier::kAnchor) && places > 0 && !p.dwelling && p.score > o.least_score * uniform;
    if (enters && taken >= places) {
      enters = taken == places && weakest() && wishes[i].value > o.enter_ratio * wishes[anchors.back()].value;
      if (enters) leave();
    }
    if (enters) {
      wishes[i].tier = Tier::kAnchor, wishes[i].why = "score";
      ++taken;
    } else if (p.tier == Tier::kRecent) {
      wishes[i].tier = Tier::kStale1, wishes[i].why = "age";
    }
  }
}

}  // namespace varve::cache
