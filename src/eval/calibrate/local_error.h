#pragma once
// What a codec does to a layer's own keys and values, without the model: mean squared error of decoded rows.

#include <map>
#include <string>
#include <vector>

#include "format/layout.h"
#include "varve/engine.h"

namespace varve::eval {

struct LocalErrors {
  /// By centre ("none", "post", "rotary") and K codec ("8" ... "2"): mean |k - decoded k|^2 of a key.
  std::map<std::string, std::map<std::string, double>> k;
  std::map<std::string, double> v;  ///< by V codec: mean |v - decoded v|^2
};

struct LocalErrorOptions {
  int page_tokens = 128;
  int first_position = 0;  ///< sinks are below: attention reads them exactly, whatever page 0 holds
  int end_position = 0;
  int pages = 4;  ///< at most so many whole pages, evenly spaced
  std::vector<std::string> k_codecs, v_codecs;
  format::EncodeOptions encode;
};

/// Of one layer (by `geometry`) in a session of a dense engine, all KV heads. Pages of which a window has let rows go
/// are passed over; kInvalidArgument when no whole page is left.
Result<LocalErrors> measure_local_errors(const Engine& dense, SessionId session, const format::LayerGeometry& geometry,
                                         const LocalErrorOptions& options);

/// The centre with the least error, where one that costs less to read (none, then post, then rotary) and errs at most
/// kCentreTolerance times as much wins.
inline constexpr double kCentreTolerance = 1.03;
std::string best_centre(const LocalErrors& errors, const std::string& k_codec);

}  // namespace varve::eval
