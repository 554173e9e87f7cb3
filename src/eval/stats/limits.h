#pragma once
// What a number of observations can and cannot show.

#include <cstdint>
#include <string>

namespace varve::eval {

/// Upper bound of the loss rate after no loss in n: 1 - (1 - confidence)^(1/n); 1 when n is 0.
double zero_loss_bound(int64_t n, double confidence = 0.95);

/// Pairs that show with the given power that an arm which is truly as good is not worse by `margin`, when a share
/// `discordance` of the pairs differs: (z(confidence) + z(power))^2 * discordance / margin^2, both quantiles one-sided,
/// rounded up (the normal approximation of the paired difference's variance, discordance / n). At least 1.
int64_t pairs_for_margin(double margin, double discordance, double confidence = 0.95, double power = 0.8);

/// Fewest losses, beside no win, whose exact McNemar p is below 1 - confidence: 6 at 95 %.
int64_t losses_to_detect(double confidence = 0.95);

/// One or two sentences for a report: what wins and losses among n pairs say, and what n could have shown at best.
std::string what_n_shows(int64_t n, int64_t wins, int64_t losses, double margin = 0.01);

}  // namespace varve::eval
