#pragma once
// The summary as text for a terminal.

#include <string>

#include "eval/report/summary.h"

namespace varve::eval {

/// Divergence and bytes of every arm; for task suites also every task's score beside dense, flips, p, and what n shows.
std::string summary_table(const Summary& summary);

}  // namespace varve::eval
