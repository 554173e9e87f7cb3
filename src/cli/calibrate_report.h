#pragma once
// A calibration as tables for people.

#include <ostream>

#include "eval/calibrate/calibrate.h"

namespace varve::cli {

void print_calibration(std::ostream& out, const eval::Calibration& calibration, const eval::CalibrateOptions& options);

}  // namespace varve::cli
