#pragma once
// What a codec does to a layer's own keys and values, without the model: mean squared error of decoded rows.

#include <map>
#include <string>
#include <vector>

#include "format/layout.h"
#include "varve/engine.h"

namespace varve::eval {

struct LocalErrors {
  std::map<std::string, double> k;  ///< by K codec ("8" ... "2"): mean |k - decoded k|^2 of a key
  std::map<std::string, double> v;  ///< by V codec: mean |v - decoded v|^2
};

struct LocalErrorOptions {
  int page_tokens = 128;
  int first_position = 0;  ///< sinks are below: attention reads them exactly, whatever page 0 holds
  int end_position = 0;
  int pages = 4;  ///< at most so many whole pages, evenly spaced
  format::Centre centre = format::Centre::kNone;
  std::vector<std::string> k_codecs, v_codecs;
  format::EncodeOptions encode;
};

/// Of one layer (by `geometry`) in a session of a dense engine, all KV heads. Pages of which a window has let rows go
/// are passed over; kInvalidArgument when no whole page is left.
Result<LocalErrors> measure_local_errors(const Engine& dense, SessionId session, const format::LayerGeometry& geometry,
                                         const LocalErrorOptions& options);

}  // namespace varve::eval
