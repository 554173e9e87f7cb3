#pragma once
// What a number of observations can and cannot show.

#include <cstdint>
#include <string>

namespace varve::eval {

/// Upper bound of the loss rate after no loss in n: 1 - (1 - confidence)^(1/n); 1 when n is 0.
double zero_loss_bound(int64_t n, double confidence = 0.95);

/// Pairs needed to show that an arm that is truly as good is not worse than `margin`, when a share `discordance` of the
/// pairs differs: z(confidence, one-sided)^2 * discordance / margin^2 with power one half, rounded up; with `power`
/// (z_a + z_b)^2 * discordance / margin^2.
int64_t pairs_for_margin(double margin, double discordance, double confidence = 0.95, double power = 0.8);

/// Fewest losses (with no win) whose exact McNemar p is below 1 - confidence: 6 at 95 %.
int64_t losses_to_detect(double confidence = 0.95);

/// One or two sentences for a report: what wins and losses among n pairs say, and what n could have shown at best.
std::string what_n_shows(int64_t n, int64_t wins, int64_t losses, double margin = 0.01);

}  // namespace varve::eval
