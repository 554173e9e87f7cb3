#pragma once
// The words and tables around the picture, the same for the terminal and for HTML. Texts hold what the file says, as
// it says it: whoever prints them makes them safe for the place.

#include <string>
#include <vector>

#include "cli/trace/picture.h"

namespace varve::cli {

struct Table {
  struct Column {
    std::string name;
    bool right = false;  ///< aligned: numbers
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

/// "12,345".
std::string with_commas(uint64_t n);
/// "1 step", "12,345 steps".
std::string plural(uint64_t n, const std::string& noun);
/// "session 3" or "session 3, window 512".
std::string panel_name(const PanelKey& key);
/// What a panel shows and how finely: "session 3: a column is 12 steps, a row 1 page".
std::string panel_title(const Panel& panel);
/// "step 12, session 1, position 128: stale1 to anchor (score, restore)".
std::string describe_event(const TraceEvent& event);

/// What the trace is of: one line about the run, one about its extent.
std::vector<std::string> describe_trace(const Picture& picture);
/// Bytes by tier after the last steps of five columns, from the first to the last (fewer columns: all of them).
Table bytes_table(const Picture& picture);
/// One row for each (from, to, why, how).
Table moves_table(const Picture& picture);
/// One row for each of the first `most` promotions that the picture marks.
Table promotions_table(const Picture& picture, size_t most);
/// Promotions, the slowest move, refusals: one sentence each.
std::vector<std::string> describe_costs(const Picture& picture);

}  // namespace varve::cli
