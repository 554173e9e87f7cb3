#pragma once
// A calibration as it is kept inside the profile that came out of it (docs/calibrate.md lists the keys).

#include <string>
#include <vector>

#include "eval/calibrate/calibrate.h"

namespace varve::eval {

/// Which bytes were read.
struct TextIdentity {
  std::string name;    ///< file name without directories
  std::string sha256;  ///< of the whole file
  int64_t offset = 0;  ///< first byte that was read
};

/// The calibrated profile with name, description and record. `passages`: one identity for each.
Result<Profile> recorded_profile(const Calibration& calibration, const CalibrateOptions& options,
                                 const std::string& model_name, const std::vector<TextIdentity>& passages,
                                 const TextIdentity& held_out);

}  // namespace varve::eval
