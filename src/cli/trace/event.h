#pragma once
// One line of a lifecycle trace, as `varve run --trace` writes it: docs/json.md has the keys. A trace comes from a file
// that anybody may have written, so every value is checked and every text is bounded.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "varve/status.h"

namespace varve::cli {

/// Where a page is: a tier, or nowhere (written "").
using Place = std::optional<cache::Tier>;
/// The tier's name, or "" for nowhere.
const char* place_name(Place place);

/// The largest values that a trace may hold. Within them no sum over a trace overflows 64 bits.
inline constexpr uint64_t kMaxTraceStep = uint64_t{1} << 40;
inline constexpr uint64_t kMaxTracePosition = (uint64_t{1} << 31) - 1;
inline constexpr uint64_t kMaxTracePageBytes = uint64_t{1} << 40;
inline constexpr double kMaxTraceMicroseconds = 1e15;
inline constexpr size_t kMaxTraceWordBytes = 64;  ///< of why and how

/// The first line. A file without one has the defaults.
struct TraceHeader {
  bool present = false;
  std::string model, profile;
  int64_t page_tokens = 0;                                 ///< 0: not said
  int64_t recent_tokens = 0;                               ///< 0: not said
  std::vector<std::pair<std::string, std::string>> tiers;  ///< name and format, in the file's order
};

enum class TraceOutcome { kPublished, kAbandoned, kRefused };

/// A page's move, or one that was refused. Keys that a trace may lack have the defaults.
struct TraceEvent {
  int64_t step = 0;
  uint64_t session = 0;
  std::optional<uint64_t> page;  ///< names the page across sessions; without it (session, window, start) does
  int64_t page_start = 0;        ///< position of the first token
  int64_t window = 0;            ///< of the page's attention class; 0: full attention
  Place from, to;
  std::string why, how;
  TraceOutcome outcome = TraceOutcome::kPublished;
  std::optional<double> score;  ///< of the page when it was decided
  uint64_t from_bytes = 0, to_bytes = 0;
  double microseconds = 0;
};

/// Whether a move makes a page finer again: out of a stale tier into a better one.
bool is_promotion(const TraceEvent& event);

/// What parse_trace_line found instead of an event.
struct TraceLineError {
  bool cut = false;  ///< the text ends before the JSON does: what a killed process leaves behind
  std::string message;
};

/// Reads one event; unknown keys are ignored whatever they hold. Returns what is wrong with the line (the key, its
/// value and what it may be), or nothing.
std::optional<TraceLineError> parse_trace_line(std::string_view line, TraceEvent* event);

/// Reads a header. kNotFound: the line is none (no object with the key "varve_trace"); kCorrupt: one with bad values.
Result<TraceHeader> parse_trace_header(std::string_view line);

}  // namespace varve::cli
