#include "model/vocabulary.h"

#include <string>

#include "model/text.h"

namespace varve::model {
namespace {

/// Printable, and short enough for a message.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
  }
  return out + "\"";
}

}  // namespace

Status check_same_vocabulary(const Model& a, const Model& b) {
  const int tokens = a.info().vocabulary;
  if (b.info().vocabulary != tokens) {
    return invalid_argument(b.info().name + " has a vocabulary of " + std::to_string(b.info().vocabulary) +
                            " tokens, " + a.info().name + " of " + std::to_string(tokens));
  }
  int differ = 0;
  std::string first;
  for (int32_t t = 0; t < tokens; ++t) {
    const auto in_a = piece(a, t, true), in_b = piece(b, t, true);
    if (!in_a.ok()) return in_a.status();
    if (!in_b.ok()) return in_b.status();
    const bool end_in_a = is_end_of_generation(a, t), end_in_b = is_end_of_generation(b, t);
    if (*in_a == *in_b && end_in_a == end_in_b) continue;
    if (differ++ != 0) continue;
    first = std::to_string(t) + ": " + quoted(*in_b) + (end_in_b ? " (an end)" : "") + " and " + quoted(*in_a) +
            (end_in_a ? " (an end)" : "");
  }
  if (differ == 0) return {};
  return invalid_argument(std::to_string(differ) + " of " + std::to_string(tokens) + " tokens of " + b.info().name +
                          " are not those of " + a.info().name + ", the first is " + first);
}

}  // namespace varve::model
