#pragma once
// What a sequence remembers of its router between steps.

#include <cstdint>
#include <vector>

namespace varve::attention {

/// The selections of a sequence's last one-row steps in one attention class. Whoever owns the sequence keeps it and
/// hands it to every step; a sequence that is forked, cut or started from a prefix begins with an empty one. A lost
/// memory costs nothing but a new selection.
struct RouteMemory {
  int position = -1;                         ///< of the last routed row; -1: none
  int age = 0;                               ///< steps since the selection that it used
  int always_from = 0;                       ///< pages below, the first one apart, are what the selection chose from
  std::vector<std::vector<uint8_t>> chosen;  ///< [layer ordinal][KV head x page below always_from]
};

}  // namespace varve::attention
