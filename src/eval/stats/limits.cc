#include "eval/stats/limits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "eval/stats/paired.h"
#include "eval/stats/quantile.h"

namespace varve::eval {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.01 ? "%.2f %%" : "%.1f %%", 100 * share);
  return text;
}

std::string number(int64_t n, const char* one, const char* many) {
  return (n == 0 ? "no" : std::to_string(n)) + " " + (n == 1 ? one : many);
}

}  // namespace

double zero_loss_bound(int64_t n, double confidence) {
  return n <= 0 ? 1 : 1 - std::pow(1 - confidence, 1 / double(n));
}

int64_t pairs_for_margin(double margin, double discordance, double confidence, double power) {
  const double z = normal_quantile(confidence) + normal_quantile(power);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(z * z * discordance / (margin * margin))));
}

int64_t losses_to_detect(double confidence) {
  int64_t losses = 1;
  while (mcnemar_exact(0, losses) >= 1 - confidence) ++losses;
  return losses;
}

std::string what_n_shows(int64_t n, int64_t wins, int64_t losses, double margin) {
  if (n == 0) return "No pair was compared: nothing is shown.";
  std::string text = "Of " + number(n, "pair", "pairs") + ", " + number(losses, "loss", "losses") + " and " +
                     number(wins, "win", "wins") + ": ";
  if (losses == 0) {
    text += "the true loss rate is below " + percent(zero_loss_bound(n)) + " (95 %).";
  } else {
    char p[32];
    std::snprintf(p, sizeof p, "%.2g", mcnemar_exact(wins, losses));
    const bool differs = mcnemar_exact(wins, losses) < 0.05;
    text += std::string(differs ? (wins > losses ? "the arm is better" : "the arm is worse")
                                : "no difference is shown, which does not show that there is none") +
            " (exact McNemar p = " + p + ").";
  }
  if (const int64_t least = losses_to_detect(); n < least)
    return text + " No outcome of fewer than " + std::to_string(least) + " pairs can show a loss.";
  const int64_t discordant = wins + losses;
  const int64_t needed = discordant == 0 ? static_cast<int64_t>(std::ceil(std::log(0.05) / std::log1p(-margin)))
                                         : pairs_for_margin(margin, double(discordant) / double(n));
  if (n < needed) text += " A margin of " + percent(margin) + " would need about " + std::to_string(needed) + " pairs.";
  return text;
}

}  // namespace varve::eval
