#pragma once
// The first reading of a trace: what it spans and what it counts, so that the second one can paint on a grid of the
// right size. Memory grows with the sessions of the trace, not with its lines.

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/trace/event.h"

namespace varve::cli {

/// What one panel of the picture shows: the pages of one session in one attention class.
struct PanelKey {
  uint64_t session = 0;
  int64_t window = 0;
  auto operator<=>(const PanelKey&) const = default;
};

struct PanelSpan {
  uint64_t events = 0;
  int64_t first_step = 0, last_step = 0;
  int64_t last_page_start = 0;  ///< of the pages that moved
};

/// Moves of one kind.
struct MoveKey {
  Place from, to;
  std::string why, how;
  auto operator<=>(const MoveKey&) const = default;
};

struct MoveCount {
  uint64_t published = 0, abandoned = 0, refused = 0;
  uint64_t bytes = 0;  ///< written by the published ones; a reference (a prefix hit) writes none
  double most_microseconds = 0;
};

struct PromotionCount {
  uint64_t published = 0;
  uint64_t lossy = 0;  ///< of these, rebuilt from the codes alone (how = "lossy")
  uint64_t bytes = 0;  ///< written
};

/// Kinds of moves and reasons that are told apart; whatever comes after these many is counted as kOtherWord.
inline constexpr size_t kMostMoveKinds = 256;
inline constexpr const char* kOtherWord = "(other)";

struct TraceSurvey {
  std::string path;
  TraceHeader header;
  int64_t page_tokens = 0;   ///< the header's, or the greatest common divisor of the page starts
  uint64_t file_events = 0;  ///< in the whole file
  uint64_t events = 0;       ///< of the session asked for, or all
  int64_t first_step = 0, last_step = 0;
  std::map<PanelKey, PanelSpan> panels;
  std::map<MoveKey, MoveCount> moves;
  std::map<std::string, uint64_t> refused;  ///< by reason
  PromotionCount promotions;
  std::optional<TraceEvent> slowest;  ///< published; empty when none took time
  uint64_t backward_steps = 0;        ///< events behind the step of the one before them
  std::optional<uint64_t> cut_line;   ///< the last line, left out because it ends in the middle
};

/// Called now and then with the bytes read by this reading and the bytes of the file.
using TraceProgress = std::function<void(uint64_t done, uint64_t total)>;

/// session: only this one's events are counted. kNotFound: the trace does not have it; and the errors of TraceReader.
Result<TraceSurvey> survey_trace(const std::string& path, std::optional<uint64_t> session,
                                 const TraceProgress& progress = nullptr);

}  // namespace varve::cli
