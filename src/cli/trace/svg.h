#pragma once
// The picture as SVG, alone and inside an HTML page: self-contained, no scripts, light and dark by the viewer's
// preference. The same trace always gives the same text.

#include <string>
#include <string_view>

#include "cli/trace/picture.h"

namespace varve::cli {

/// Text between tags or in an attribute: the five characters escaped, and those that XML 1.0 does not allow become
/// spaces. Takes valid UTF-8, or any bytes, of which the invalid ones become '?'.
std::string escape_xml(std::string_view text);

/// Panels with axes, a legend, marked promotions, and the bytes by tier as a stacked area.
std::string draw_svg(const Picture& picture);

/// The SVG, then the tables and notes.
std::string draw_html(const Picture& picture);

}  // namespace varve::cli
