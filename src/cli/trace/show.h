#pragma once
// `varve inspect --trace`: reads a trace and writes what was asked for.

#include <cstdint>
#include <optional>
#include <string>

#include "varve/status.h"

namespace varve::cli {

struct TraceOptions {
  std::string file;
  std::string svg, html;  ///< empty: not written
  std::optional<uint64_t> session;
  bool json = false;
};

/// Writes --svg and --html, then the picture, or the summary, to stdout. kIoError before anything is read when an
/// output cannot be written; kInvalidArgument when two of the files are the same; the errors of read_picture.
Status show_trace(const TraceOptions& options);

}  // namespace varve::cli
