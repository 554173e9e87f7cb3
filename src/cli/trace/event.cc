#include "cli/trace/event.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownBytes = 40;  // of a value that an error message repeats
constexpr size_t kMaxHeaderTextBytes = 256;

enum Field {
  kStep,
  kSession,
  kPage,
  kPageStart,
  kWindow,
  kFrom,
  kTo,
  kWhy,
  kHow,
  kOutcome,
  kScore,
  kFromBytes,
  kToBytes,
  kMicroseconds,
  kFields
};

enum class Kind { kWhole, kNumber, kText };

struct FieldRule {
  const char* key;
  Kind kind;
  bool required;
  uint64_t most;  ///< kWhole: the largest value
};

constexpr std::array<FieldRule, kFields> kRules = {{
    {"step", Kind::kWhole, true, kMaxTraceStep},
    {"session", Kind::kWhole, false, UINT64_MAX},
    {"page", Kind::kWhole, false, UINT64_MAX},
    {"page_start", Kind::kWhole, true, kMaxTracePosition},
    {"window", Kind::kWhole, false, kMaxTracePosition},
    {"from", Kind::kText, true, 0},
    {"to", Kind::kText, true, 0},
    {"why", Kind::kText, false, 0},
    {"how", Kind::kText, false, 0},
    {"outcome", Kind::kText, true, 0},
    {"score", Kind::kNumber, false, 0},
    {"from_bytes", Kind::kWhole, false, kMaxTracePageBytes},
    {"to_bytes", Kind::kWhole, false, kMaxTracePageBytes},
    {"us", Kind::kNumber, false, 0},
}};

std::string shortened(std::string text) {
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

std::string wanted(const FieldRule& rule) {
  switch (rule.kind) {
    case Kind::kWhole: return "a whole number from 0 to " + std::to_string(rule.most);
    case Kind::kNumber: return std::string(rule.key) == "us" ? "a number from 0 to 1e15" : "a number";
    case Kind::kText: return "a text";
  }
  return "";
}

std::string known_tiers() {
  std::string list;
  for (size_t t = 0; t < cache::kTiers; ++t) list += std::string(cache::tier_name(static_cast<cache::Tier>(t))) + ", ";
  return list + "and \"\" for nowhere";
}

bool read_place(const std::string& name, Place* place) {
  place->reset();
  for (size_t t = 0; t < cache::kTiers; ++t) {
    if (name == cache::tier_name(static_cast<cache::Tier>(t))) *place = static_cast<cache::Tier>(t);
  }
  return place->has_value() || name.empty();
}

/// Takes the values of an event as the parser meets them, so that no document is built for a line.
class EventHandler {
 public:
  explicit EventHandler(TraceEvent* event) : event_(event) {}

  bool null() { return value("null"); }
  bool boolean(bool v) { return value(v ? "true" : "false"); }
  bool number_integer(int64_t v) {  // with a minus sign: -0 too
    return number(static_cast<double>(v), v == 0 ? "-0" : std::to_string(v));
  }
  bool number_float(double v, const std::string& text) { return number(v, text); }
  bool number_unsigned(uint64_t v) {
    if (!relevant()) return top();
    if (kRules[*field_].kind != Kind::kWhole || v > kRules[*field_].most) {
      return number(static_cast<double>(v), std::to_string(v));
    }
    seen_[*field_] = true;
    switch (*field_) {
      case kStep: event_->step = static_cast<int64_t>(v); break;
      case kSession: event_->session = v; break;
      case kPage: event_->page = v; break;
      case kPageStart: event_->page_start = static_cast<int64_t>(v); break;
      case kWindow: event_->window = static_cast<int64_t>(v); break;
      case kFromBytes: event_->from_bytes = v; break;
      case kToBytes: event_->to_bytes = v; break;
      default: break;
    }
    return true;
  }
  bool string(std::string& v) {
    if (!relevant()) return top();
    if (kRules[*field_].kind != Kind::kText) return wrong("\"" + shortened(v) + "\"");
    seen_[*field_] = true;
    switch (*field_) {
      case kFrom: return read_place(v, &event_->from) || unknown(v, known_tiers());
      case kTo: return read_place(v, &event_->to) || unknown(v, known_tiers());
      case kWhy: return word(v, &event_->why);
      case kHow: return word(v, &event_->how);
      case kOutcome: return outcome(v);
      default: return true;
    }
  }
  bool binary(Json::binary_t&) { return true; }  // JSON text has none
  bool start_object(size_t) {
    object_ |= depth_ == 0;
    return open("{...}");
  }
  bool start_array(size_t) { return open("[...]"); }
  bool end_object() { return --depth_, true; }
  bool end_array() { return --depth_, true; }
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    field_.reset();
    for (size_t f = 0; f < kFields; ++f) {
      if (name == kRules[f].key) field_ = static_cast<Field>(f);
    }
    return true;
  }
  bool parse_error(size_t position, const std::string& last_token, const Json::exception& error) {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {  // 1e999
      if (relevant()) return wrong(shortened(last_token));
      error_.message = "the number " + shortened(last_token) + " is too large";
      return false;
    }
    json_error_position_ = position;
    error_.message = "not JSON (byte " + std::to_string(position) + ")";
    return false;
  }

  /// What the values together lack.
  bool complete() {
    if (!object_) return top();
    for (size_t f = 0; f < kFields; ++f) {
      if (kRules[f].required && !seen_[f]) {
        error_.message = std::string("no \"") + kRules[f].key + "\"";
        return false;
      }
    }
    return true;
  }
  TraceLineError error(size_t line_bytes) {
    error_.cut = json_error_position_ && *json_error_position_ > line_bytes;
    return error_;
  }

 private:
  bool relevant() const { return depth_ == 1 && field_.has_value(); }
  /// A value where the object should have begun.
  bool top() {
    if (depth_ > 0) return true;
    error_.message = "not a JSON object";
    return false;
  }
  bool open(const char* shown) {
    if (relevant()) return wrong(shown);
    if (depth_ == 0 && !object_) return top();
    ++depth_;
    return true;
  }
  bool value(const char* shown) {
    if (!relevant()) return top();
    // A score that is not a number (0/0) is written as null; it decides nothing here.
    if (*field_ == kScore && std::string_view(shown) == "null") return true;
    return wrong(shown);
  }
  bool number(double v, const std::string& text) {
    if (!relevant()) return top();
    if (kRules[*field_].kind != Kind::kNumber) return wrong(shortened(text));
    if (*field_ == kMicroseconds) {
      if (!(v >= 0 && v <= kMaxTraceMicroseconds)) return wrong(shortened(text));
      event_->microseconds = v;
    } else {
      event_->score = v;
    }
    return true;
  }
  bool word(const std::string& v, std::string* out) {
    if (v.size() > kMaxTraceWordBytes) {
      error_.message = std::string(kRules[*field_].key) + " has " + std::to_string(v.size()) + " bytes; at most " +
                       std::to_string(kMaxTraceWordBytes) + " are read";
      return false;
    }
    *out = v;
    return true;
  }
  bool outcome(const std::string& v) {
    if (v == "published") return event_->outcome = TraceOutcome::kPublished, true;
    if (v == "abandoned") return event_->outcome = TraceOutcome::kAbandoned, true;
    if (v == "refused") return event_->outcome = TraceOutcome::kRefused, true;
    return unknown(v, "published, abandoned, refused");
  }
  bool unknown(const std::string& v, const std::string& known) {
    error_.message = std::string(kRules[*field_].key) + " is \"" + shortened(v) + "\" (known: " + known + ")";
    return false;
  }
  bool wrong(const std::string& shown) {
    error_.message = std::string(kRules[*field_].key) + " is " + shown + "; it must be " + wanted(kRules[*field_]);
    return false;
  }

  TraceEvent* event_;
  int depth_ = 0;
  bool object_ = false;
  std::optional<Field> field_;
  std::array<bool, kFields> seen_{};
  std::optional<size_t> json_error_position_;
  TraceLineError error_;
};

Status bad_header(const char* key, const Json& value, const std::string& expected) {
  return corrupt(std::string(key) + " is " + shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace)) +
                 "; it must be " + expected);
}

Status read_header_text(const Json& object, const char* key, std::string* out) {
  const auto it = object.find(key);
  if (it == object.end()) return {};
  if (!it->is_string() || it->get_ref<const std::string&>().size() > kMaxHeaderTextBytes) {
    return bad_header(key, *it, "a text of at most " + std::to_string(kMaxHeaderTextBytes) + " bytes");
  }
  *out = it->get<std::string>();
  return {};
}

Status read_header_tokens(const Json& object, const char* key, uint64_t least, int64_t* out) {
  const auto it = object.find(key);
  if (it == object.end()) return {};
  const bool fits =
      it->is_number_unsigned() && it->get<uint64_t>() >= least && it->get<uint64_t>() <= kMaxTracePosition;
  if (!fits) {
    return bad_header(key, *it,
                      "a whole number from " + std::to_string(least) + " to " + std::to_string(kMaxTracePosition));
  }
  *out = it->get<int64_t>();
  return {};
}

}  // namespace

const char* place_name(Place place) { return place ? cache::tier_name(*place) : ""; }

bool is_promotion(const TraceEvent& event) {
  // Tiers are declared from fine to coarse; recent and anchor pages count as equally fine.
  return event.outcome == TraceOutcome::kPublished && event.from && event.to && *event.from >= cache::Tier::kStale1 &&
         *event.to < *event.from;
}

std::optional<TraceLineError> parse_trace_line(std::string_view line, TraceEvent* event) {
  *event = TraceEvent{};
  EventHandler handler(event);
  if (Json::sax_parse(line.begin(), line.end(), &handler) && handler.complete()) return std::nullopt;
  return handler.error(line.size());
}

Result<TraceHeader> parse_trace_header(std::string_view line) {
  const Json object = Json::parse(line.begin(), line.end(), nullptr, false);
  if (!object.is_object() || !object.contains("varve_trace")) return not_found("no header");
  if (object["varve_trace"] != 1) {
    return bad_header("varve_trace", object["varve_trace"], "1, the format that this build reads");
  }
  TraceHeader header;
  header.present = true;
  if (Status s = read_header_text(object, "model", &header.model); !s.ok()) return s;
  if (Status s = read_header_text(object, "profile", &header.profile); !s.ok()) return s;
  if (Status s = read_header_tokens(object, "page_tokens", 1, &header.page_tokens); !s.ok()) return s;
  if (Status s = read_header_tokens(object, "recent_tokens", 0, &header.recent_tokens); !s.ok()) return s;
  const auto tiers = object.find("tiers");
  if (tiers == object.end()) return header;
  if (!tiers->is_object()) return bad_header("tiers", *tiers, "an object of tier names and formats");
  for (const auto& [name, format] : tiers->items()) {
    Place place;
    if (!read_place(name, &place) || !place) {
      return corrupt("tiers has \"" + shortened(name) + "\" (known: " + known_tiers() + ")");
    }
    std::string text;
    if (Status s = read_header_text(*tiers, name.c_str(), &text); !s.ok()) return s;
    header.tiers.emplace_back(name, std::move(text));
  }
  return header;
}

}  // namespace varve::cli
