#pragma once
// The report as one HTML page: pictures and tables, nothing loaded from elsewhere.

#include <optional>
#include <string>
#include <vector>

#include "eval/report/summary.h"
#include "eval/report/svg.h"

namespace varve::eval {

/// What each codec costs in each layer of a model, as a calibrated profile records it.
struct LayerSensitivity {
  std::string profile;
  std::vector<std::string> layers;                     ///< names of the columns
  std::vector<std::string> codecs;                     ///< names of the rows, "k4", "v3"
  std::vector<std::vector<std::optional<double>>> kl;  ///< [codecs][layers], nats a token
};

/// Nothing when the profile was not calibrated.
std::optional<LayerSensitivity> layer_sensitivity(const Profile& profile);

/// Score by depth and arm: one cell a tenth of the context, over the items that ask for something there.
HeatMap depth_map(const std::vector<ItemRecord>& records, int length);

std::string html_report(const Summary& summary, const std::vector<ItemRecord>& records,
                        const std::vector<LayerSensitivity>& sensitivities, const std::string& command);

}  // namespace varve::eval
