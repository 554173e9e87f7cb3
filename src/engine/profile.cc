#include "varve/profile.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/sha256.h"
#include "format/codec.h"

namespace varve {
namespace {

using Json = nlohmann::ordered_json;

struct TierField {
  const char* key;
  std::string TierFormats::*member;
};
constexpr TierField kTierFields[] = {
    {"recent", &TierFormats::recent}, {"anchor", &TierFormats::anchor}, {"stale1", &TierFormats::stale1},
    {"stale2", &TierFormats::stale2}, {"centre", &TierFormats::centre},
};

Profile base_profile(std::string name, std::string description, TierFormats formats) {
  Profile p;
  p.name = std::move(name);
  p.description = std::move(description);
  p.formats = std::move(formats);
  return p;
}

/// Differential-KV's presets: docs/adr/0021 has what they take over from its README and what not.
struct LowRankPreset {
  const char* name;
  const char* format;
  double energy;
};
constexpr LowRankPreset kLowRankPresets[] = {
    {"dkv-low", "lr32+64/rotated", 0.999},
    {"dkv-mid", "lr64+128", 0.9999},
    {"dkv-high", "lr128+256", 0.99999},
    {"dkv-ultra", "lr64+256", 0.9999},
};

Profile low_rank_profile(std::string name, std::string description, const std::string& format) {
  Profile p = base_profile(std::move(name), std::move(description),
                           {.recent = "int8", .anchor = {}, .stale1 = format, .stale2 = {}, .centre = "auto"});
  p.page_tokens = 1024;
  p.recent_tokens = 1024;
  return p;
}

Profile dense_profile() {
  Profile p = base_profile("dense", "every page f16: the control; no codec, conversion or scoring code runs",
                           {.recent = "f16", .anchor = {}, .stale1 = {}, .stale2 = {}, .centre = "none"});
  p.sink_tokens = 0;
  return p;
}

bool is_low_rank(const std::string& format_name) {
  const auto parsed = format::parse_format(format_name, format::Centre::kNone);
  return parsed.ok() && parsed->is_low_rank();
}

/// The format of the same name with `factor` times the rank.
std::string scale_rank(const std::string& format_name, double factor) {
  auto parsed = format::parse_format(format_name, format::Centre::kNone);
  if (!parsed.ok() || !parsed->is_low_rank()) return format_name;
  const auto rank = static_cast<int>(std::lround(parsed->low_rank.rank * factor));
  parsed->low_rank.rank = std::clamp(rank, 1, format::kMaxLowRankTokens - 1);
  return format::format_name(*parsed);
}

Json formats_json(const TierFormats& f) {
  Json out = Json::object();
  for (const TierField& field : kTierFields) {
    if (!(f.*field.member).empty()) out[field.key] = f.*field.member;
  }
  return out;
}

/// "a-b", "a" or "-1"; both ends inclusive, negative from the end.
std::string layer_range(int first, int last) {
  return first == last ? std::to_string(first) : std::to_string(first) + ".." + std::to_string(last);
}

/// A record of many small objects: one line a key, one line an element of an array of objects.
std::string calibration_text(const Json& record) {
  std::string out = "{";
  for (const auto& [key, value] : record.items()) {
    out += (out.size() == 1 ? "\n    " : ",\n    ") + Json(key).dump() + ": ";
    const bool rows = value.is_array() && !value.empty() && value.front().is_object();
    if (!rows) {
      out += value.dump();
      continue;
    }
    for (size_t i = 0; i < value.size(); ++i) out += (i == 0 ? "[\n      " : ",\n      ") + value[i].dump();
    out += "\n    ]";
  }
  return out + "\n  }";
}

Status parse_layer_range(const std::string& text, int& first, int& last) {
  const size_t dots = text.find("..");
  const std::string a = text.substr(0, dots), b = dots == std::string::npos ? a : text.substr(dots + 2);
  try {
    size_t used_a = 0, used_b = 0;
    first = std::stoi(a, &used_a);
    last = std::stoi(b, &used_b);
    if (used_a == a.size() && used_b == b.size()) return {};
  } catch (const std::exception&) {
  }
  return invalid_argument("profile: layers \"" + text + "\" is not a layer (\"0\", \"-1\") or a range (\"0..3\")");
}

/// Reads typed fields and remembers which keys were asked for, so that the rest can be refused.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  template <typename T>
  void read(const char* key, T& out) {
    known_.insert(key);
    const auto it = object_.find(key);
    if (it == object_.end() || !status_.ok()) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (!it->is_boolean()) return fail(key, "true or false", *it);
    } else if constexpr (std::is_integral_v<T>) {
      if (!it->is_number_integer()) return fail(key, "a whole number", *it);
      if (std::is_unsigned_v<T> ? !it->is_number_unsigned()
                                : (it->is_number_unsigned() && it->template get<uint64_t>() > INT32_MAX) ||
                                      it->template get<int64_t>() < INT32_MIN) {
        return fail(key, "a whole number in range", *it);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!it->is_number()) return fail(key, "a number", *it);
    } else if (!it->is_string()) {
      return fail(key, "a string", *it);
    }
    out = it->template get<T>();
  }

  const Json* child(const char* key, bool array) {
    known_.insert(key);
    const auto it = object_.find(key);
    if (it == object_.end() || !status_.ok()) return nullptr;
    if (array ? !it->is_array() : !it->is_object()) {
      fail(key, array ? "an array" : "an object", *it);
      return nullptr;
    }
    return &*it;
  }

  Status finish() const {
    if (!status_.ok()) return status_;
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key)) continue;
      std::string list;
      for (const std::string& k : known_) list += (list.empty() ? "" : ", ") + k;
      return invalid_argument("profile: unknown key \"" + key + "\" in " + where_ + " (known: " + list + ")");
    }
    return {};
  }

 private:
  void fail(const char* key, const char* wanted, const Json& value) {
    status_ = invalid_argument("profile: \"" + std::string(key) + "\" in " + where_ + " must be " + wanted + ", not " +
                               value.dump().substr(0, 40));
  }

  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
  Status status_;
};

Status read_formats(const Json& object, const std::string& where, TierFormats& out) {
  Reader reader(object, where);
  for (const TierField& field : kTierFields) reader.read(field.key, out.*field.member);
  return reader.finish();
}

/// One visit per field, so that reading, writing and the list of keys agree.
template <typename S, typename Fn>
void each_scoring_field(S& s, const Fn& fn) {
  fn("on", s.on);
  fn("anchor_tokens", s.anchor_tokens);
  fn("rows", s.rows);
  fn("every_steps", s.every_steps);
  fn("layer_stride", s.layer_stride);
  fn("decay", s.decay);
  fn("score_weight", s.score_weight);
  fn("age_weight", s.age_weight);
  fn("enter_ratio", s.enter_ratio);
  fn("least_score", s.least_score);
  fn("leave_score", s.leave_score);
  fn("dwell_tokens", s.dwell_tokens);
  fn("restore", s.restore);
  fn("recompute_tokens_per_step", s.recompute_tokens_per_step);
}

template <typename R, typename Fn>
void each_router_field(R& r, const Fn& fn) {
  fn("pages", r.pages);
  fn("from_tokens", r.from_tokens);
  fn("window_tokens", r.window_tokens);
  fn("reroute_steps", r.reroute_steps);
  fn("prefill", r.prefill);
  fn("question_tokens", r.question_tokens);
}

template <typename S, typename Fn>
void each_low_rank_field(S& s, const Fn& fn) {
  fn("energy", s.energy);
  fn("least_rank", s.least_rank);
  fn("seed", s.seed);
  fn("oversample", s.oversample);
  fn("power_iterations", s.power_iterations);
  fn("coverage_bonus", s.coverage_bonus);
  fn("edge_bonus", s.edge_bonus);
}

template <typename S, typename Fn>
void each_band_field(S& s, const Fn& fn) {
  fn("early", s.early);
  fn("middle", s.middle);
  fn("late", s.late);
  fn("early_boost", s.early_boost);
  fn("early_share", s.early_share);
}

template <typename S, typename Fn>
void each_content_field(S& s, const Fn& fn) {
  fn("on", s.on);
  fn("rarity_weight", s.rarity_weight);
  fn("least_idf", s.least_idf);
  fn("digit_boost", s.digit_boost);
  fn("owner_boost", s.owner_boost);
  fn("rare_boost", s.rare_boost);
  fn("rare_count", s.rare_count);
  fn("run_gap_tokens", s.run_gap_tokens);
  fn("most_run_tokens", s.most_run_tokens);
  fn("rank_boost", s.rank_boost);
  fn("numeric_share", s.numeric_share);
}

Status read_low_rank(const Json& object, LowRankPages& out) {
  Reader reader(object, "\"low_rank\"");
  each_low_rank_field(out, [&](const char* key, auto& value) { reader.read(key, value); });
  const Json* bands = reader.child("bands", false);
  const Json* content = reader.child("content", false);
  if (Status s = reader.finish(); !s.ok()) return s;
  if (bands != nullptr) {
    Reader entry(*bands, "\"low_rank.bands\"");
    each_band_field(out.bands, [&](const char* key, auto& value) { entry.read(key, value); });
    if (Status s = entry.finish(); !s.ok()) return s;
  }
  if (content != nullptr) {
    Reader entry(*content, "\"low_rank.content\"");
    each_content_field(out.content, [&](const char* key, auto& value) { entry.read(key, value); });
    if (Status s = entry.finish(); !s.ok()) return s;
  }
  return {};
}

Json low_rank_json(const LowRankPages& pages) {
  Json out = Json::object(), bands = Json::object(), content = Json::object();
  each_low_rank_field(pages, [&](const char* key, const auto& value) { out[key] = value; });
  each_band_field(pages.bands, [&](const char* key, const auto& value) { bands[key] = value; });
  each_content_field(pages.content, [&](const char* key, const auto& value) { content[key] = value; });
  out["bands"] = std::move(bands);
  out["content"] = std::move(content);
  return out;
}

Status check_formats(const TierFormats& f, bool complete, const std::string& where) {
  if (complete && f.recent.empty()) return invalid_argument("profile: " + where + " names no format for \"recent\"");
  const auto centre = format::parse_centre(f.centre.empty() || f.centre == "auto" ? "none" : f.centre);
  if (!centre.ok()) return invalid_argument("profile: " + where + ": " + centre.status().message() + ", auto");
  for (const TierField& field : kTierFields) {
    const std::string& name = f.*field.member;
    if (field.member == &TierFormats::centre || name.empty()) continue;
    const auto parsed = format::parse_format(name, *centre);
    if (!parsed.ok()) {
      return invalid_argument("profile: " + where + ", tier " + field.key + ": " + parsed.status().message());
    }
  }
  if (f.recent == "f16" && !f.stale1.empty() && f.stale1 != "f16" && complete && f.centre.empty()) {
    return invalid_argument("profile: " + where + " codes keys but names no \"centre\" (none, post, rotary, auto)");
  }
  return {};
}

Status check_range(const char* what, long long value, long long low, long long high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("profile: " + std::string(what) + " is " + std::to_string(value) + "; it must be " +
                          std::to_string(low) + " to " + std::to_string(high));
}

Status check_number(const char* what, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("profile: " + std::string(what) + " is " + std::to_string(value) + "; it must be " +
                          std::to_string(low) + " to " + std::to_string(high));
}

Status check_scoring(const Scoring& s, bool has_anchor) {
  if (s.on && !has_anchor) return invalid_argument("profile: scoring is on but no format is named for tier anchor");
  const struct {
    const char* what;
    long long value, low, high;
  } counts[] = {{"scoring.anchor_tokens", s.anchor_tokens, 0, 1 << 30},
                {"scoring.rows", s.rows, 1, 8192},
                {"scoring.every_steps", s.every_steps, 1, 1 << 20},
                {"scoring.layer_stride", s.layer_stride, 1, 1 << 20},
                {"scoring.dwell_tokens", s.dwell_tokens, 0, 1 << 30},
                {"scoring.recompute_tokens_per_step", s.recompute_tokens_per_step, 1, 8192}};
  for (const auto& c : counts) {
    if (Status status = check_range(c.what, c.value, c.low, c.high); !status.ok()) return status;
  }
  const struct {
    const char* what;
    double value, low, high;
  } numbers[] = {{"scoring.decay", s.decay, 0, 0.9999},          {"scoring.score_weight", s.score_weight, 0, 1000},
                 {"scoring.age_weight", s.age_weight, 0, 1000},  {"scoring.enter_ratio", s.enter_ratio, 1, 1000},
                 {"scoring.least_score", s.least_score, 0, 1e6}, {"scoring.leave_score", s.leave_score, 0, 1e6}};
  for (const auto& n : numbers) {
    if (Status status = check_number(n.what, n.value, n.low, n.high); !status.ok()) return status;
  }
  if (s.score_weight + s.age_weight <= 0) {
    return invalid_argument(
        "profile: scoring.score_weight and scoring.age_weight are both 0: pages would have no rank");
  }
  if (s.leave_score > s.least_score) {
    return invalid_argument("profile: scoring.leave_score " + std::to_string(s.leave_score) +
                            " is above scoring.least_score " + std::to_string(s.least_score));
  }
  for (const char* known : {"recompute", "host", "disk", "none"}) {
    if (s.restore == known) return {};
  }
  return invalid_argument("profile: scoring.restore is \"" + s.restore + "\" (known: recompute, host, disk, none)");
}

Status check_router(const Routing& r) {
  const struct {
    const char* what;
    long long value, low, high;
  } counts[] = {{"router.pages", r.pages, 0, 1 << 20},
                {"router.from_tokens", r.from_tokens, 0, 1 << 30},
                {"router.window_tokens", r.window_tokens, 1, 1 << 30},
                {"router.reroute_steps", r.reroute_steps, 1, 1 << 20},
                {"router.question_tokens", r.question_tokens, 0, 8192}};
  for (const auto& c : counts) {
    if (Status status = check_range(c.what, c.value, c.low, c.high); !status.ok()) return status;
  }
  return {};
}

Status check_low_rank(const LowRankPages& p) {
  const RankBands& b = p.bands;
  const ContentOptions& c = p.content;
  const struct {
    const char* what;
    long long value, low, high;
  } counts[] = {{"low_rank.least_rank", p.least_rank, 0, format::kMaxLowRankTokens - 1},
                {"low_rank.oversample", p.oversample, 0, 256},
                {"low_rank.power_iterations", p.power_iterations, 0, 16},
                {"low_rank.content.rare_count", c.rare_count, 0, 1 << 30},
                {"low_rank.content.run_gap_tokens", c.run_gap_tokens, 0, 32},
                {"low_rank.content.most_run_tokens", c.most_run_tokens, 0, 64}};
  for (const auto& count : counts) {
    if (Status status = check_range(count.what, count.value, count.low, count.high); !status.ok()) return status;
  }
  const struct {
    const char* what;
    double value, low, high;
  } numbers[] = {{"low_rank.energy", p.energy, 0, 1},
                 {"low_rank.coverage_bonus", p.coverage_bonus, 0, 1000},
                 {"low_rank.edge_bonus", p.edge_bonus, 0, 1000},
                 {"low_rank.bands.early", b.early, 0.01, 100},
                 {"low_rank.bands.middle", b.middle, 0.01, 100},
                 {"low_rank.bands.late", b.late, 0.01, 100},
                 {"low_rank.bands.early_boost", b.early_boost, 1, 100},
                 {"low_rank.bands.early_share", b.early_share, 0, 1},
                 {"low_rank.content.rarity_weight", c.rarity_weight, 0, 1000},
                 {"low_rank.content.least_idf", c.least_idf, 0, 1000},
                 {"low_rank.content.digit_boost", c.digit_boost, 1, 1e6},
                 {"low_rank.content.owner_boost", c.owner_boost, 1, 1e6},
                 {"low_rank.content.rare_boost", c.rare_boost, 1, 1e6},
                 {"low_rank.content.rank_boost", c.rank_boost, 1, 100},
                 {"low_rank.content.numeric_share", c.numeric_share, 0, 1}};
  for (const auto& number : numbers) {
    if (Status status = check_number(number.what, number.value, number.low, number.high); !status.ok()) return status;
  }
  return {};
}

}  // namespace

double RankBands::factor(int ordinal, int count) const {
  if (early_boost > 1 && ordinal < early_share * count) return early_boost;
  const int third = 3 * ordinal / std::max(count, 1);
  return third == 0 ? early : third == 1 ? middle : late;
}

std::vector<std::string> Profile::names() {
  std::vector<std::string> out = {"dense", "fp8", "int8", "minima"};
  for (const LowRankPreset& preset : kLowRankPresets) out.emplace_back(preset.name);
  return out;
}

Result<Profile> Profile::named(std::string_view name) {
  if (name == "dense") return dense_profile();
  if (name == "fp8" || name == "int8") {
    auto p = uniform(std::string(name));
    if (p.ok()) p->description = "every sealed tile " + std::string(name);
    return p;
  }
  if (name == "minima") {
    // docs/adr/0008-the-minima-profile.md has the measurements behind these numbers.
    Profile p = base_profile("minima", "recent pages int8, older pages 4-bit keys and 3-bit values",
                             {.recent = "int8", .anchor = "int8", .stale1 = "k4v3", .stale2 = {}, .centre = "auto"});
    p.page_tokens = 128;
    p.recent_tokens = 256;
    p.sink_tokens = 4;
    return p;
  }
  for (const LowRankPreset& preset : kLowRankPresets) {
    if (name != preset.name) continue;
    Profile p =
        low_rank_profile(preset.name, std::string("recent pages int8, older pages ") + preset.format, preset.format);
    p.low_rank.energy = preset.energy;
    return p;
  }
  std::string list;
  for (const std::string& n : names()) list += (list.empty() ? "" : ", ") + n;
  return not_found("no profile \"" + std::string(name) + "\" (named: " + list +
                   "; or a format such as k4v3 for every page; or a JSON file)");
}

Result<Profile> Profile::uniform(const std::string& format_text) {
  const auto parsed = format::parse_format(format_text, format::Centre::kRotary);
  if (!parsed.ok()) return parsed.status();
  if (format::is_direct(*parsed)) return dense_profile();
  if (parsed->is_low_rank()) {
    return low_rank_profile(format_text, "recent pages int8, older pages " + format_text, format_text);
  }
  return base_profile(format_text, "every sealed tile " + format_text,
                      {.recent = format_text, .anchor = {}, .stale1 = {}, .stale2 = {}, .centre = "auto"});
}

Result<Profile> Profile::load(const std::string& name_or_path) {
  if (auto p = named(name_or_path); p.ok()) return p;
  if (auto p = uniform(name_or_path); p.ok()) return p;
  std::ifstream file(name_or_path);
  if (!file) return named(name_or_path).status();
  std::stringstream text;
  text << file.rdbuf();
  auto p = from_json(text.str());
  if (!p.ok()) return Status(p.status().code(), name_or_path + ": " + p.status().message());
  return p;
}

Result<Profile> Profile::from_json(std::string_view text) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const std::exception& e) {
    return invalid_argument(std::string("profile: not JSON: ") + e.what());
  }
  if (!root.is_object()) return invalid_argument("profile: the document must be a JSON object");

  Profile p;
  int version = 1;
  Reader reader(root, "the profile");
  reader.read("version", version);
  reader.read("name", p.name);
  reader.read("description", p.description);
  reader.read("page_tokens", p.page_tokens);
  reader.read("recent_tokens", p.recent_tokens);
  reader.read("sink_tokens", p.sink_tokens);
  reader.read("rotation_seed", p.rotation_seed);
  reader.read("inner_product_norm", p.inner_product_norm);
  reader.read("convert_tokens_per_step", p.convert_tokens_per_step);
  const Json* scoring = reader.child("scoring", false);
  const Json* low_rank = reader.child("low_rank", false);
  const Json* router = reader.child("router", false);
  const Json* tiers = reader.child("tiers", false);
  const Json* layers = reader.child("layers", true);
  const Json* calibration = reader.child("calibration", false);
  if (Status s = reader.finish(); !s.ok()) return s;
  if (version != 1) return unsupported("profile: version " + std::to_string(version) + "; this build reads version 1");
  if (tiers == nullptr) return invalid_argument("profile: \"tiers\" is missing");
  if (Status s = read_formats(*tiers, "\"tiers\"", p.formats); !s.ok()) return s;

  if (scoring != nullptr) {
    Reader entry(*scoring, "\"scoring\"");
    each_scoring_field(p.scoring, [&](const char* key, auto& value) { entry.read(key, value); });
    if (Status s = entry.finish(); !s.ok()) return s;
  }
  if (router != nullptr) {
    Reader entry(*router, "\"router\"");
    each_router_field(p.router, [&](const char* key, auto& value) { entry.read(key, value); });
    if (Status s = entry.finish(); !s.ok()) return s;
  }
  if (low_rank != nullptr) {
    if (Status s = read_low_rank(*low_rank, p.low_rank); !s.ok()) return s;
  }
  for (size_t i = 0; layers != nullptr && i < layers->size(); ++i) {
    const std::string where = "\"layers\"[" + std::to_string(i) + "]";
    if (!(*layers)[i].is_object()) return invalid_argument("profile: " + where + " must be an object");
    LayerOverride o;
    std::string range;
    Reader entry((*layers)[i], where);
    entry.read("layers", range);
    for (const TierField& field : kTierFields) entry.read(field.key, o.formats.*field.member);
    if (Status s = entry.finish(); !s.ok()) return s;
    if (Status s = parse_layer_range(range, o.first, o.last); !s.ok()) return s;
    p.layers.push_back(std::move(o));
  }
  if (calibration != nullptr) {
    if (Status s = p.set_calibration(calibration->dump()); !s.ok()) return s;
  }
  if (Status s = p.validate(); !s.ok()) return s;
  if (low_rank != nullptr && !p.has_low_rank()) {
    return invalid_argument("profile: \"low_rank\" is there, but no tier has a low-rank format such as lr64+128");
  }
  return p;
}

std::string Profile::to_json() const {
  Json root;
  root["version"] = 1;
  root["name"] = name;
  root["description"] = description;
  root["page_tokens"] = page_tokens;
  root["recent_tokens"] = recent_tokens;
  root["sink_tokens"] = sink_tokens;
  root["rotation_seed"] = rotation_seed;
  root["inner_product_norm"] = inner_product_norm;
  root["convert_tokens_per_step"] = convert_tokens_per_step;
  if (!formats.anchor.empty()) {
    Json entry = Json::object();
    each_scoring_field(scoring, [&](const char* key, const auto& value) { entry[key] = value; });
    root["scoring"] = std::move(entry);
  }
  if (has_low_rank()) root["low_rank"] = low_rank_json(low_rank);
  if (router.pages != 0) {
    Json entry = Json::object();
    each_router_field(router, [&](const char* key, const auto& value) { entry[key] = value; });
    root["router"] = std::move(entry);
  }
  root["tiers"] = formats_json(formats);
  if (!layers.empty()) {
    Json list = Json::array();
    for (const LayerOverride& o : layers) {
      Json entry;
      entry["layers"] = layer_range(o.first, o.last);
      entry.update(formats_json(o.formats));
      list.push_back(std::move(entry));
    }
    root["layers"] = std::move(list);
  }
  std::string text = root.dump(2);
  if (!calibration.empty()) {
    text.resize(text.size() - 2);  // "\n}"
    text += ",\n  \"calibration\": " + calibration_text(Json::parse(calibration, nullptr, false)) + "\n}";
  }
  return text + "\n";
}

Status Profile::validate() const {
  if (page_tokens <= 0 || page_tokens % format::kTileTokens != 0 || page_tokens > 65536) {
    return invalid_argument("profile: page_tokens is " + std::to_string(page_tokens) +
                            "; it must be a multiple of 64 from 64 to 65536");
  }
  if (Status s = check_range("recent_tokens", recent_tokens, 0, 1 << 30); !s.ok()) return s;
  if (Status s = check_range("sink_tokens", sink_tokens, 0, 16); !s.ok()) return s;
  if (Status s = check_range("convert_tokens_per_step", convert_tokens_per_step, 1, 1 << 20); !s.ok()) return s;
  if (Status s = check_formats(formats, true, "\"tiers\""); !s.ok()) return s;
  if (Status s = check_scoring(scoring, !formats.anchor.empty()); !s.ok()) return s;
  if (Status s = check_low_rank(low_rank); !s.ok()) return s;
  if (Status s = check_router(router); !s.ok()) return s;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerOverride& o = layers[i];
    const std::string where = "\"layers\"[" + std::to_string(i) + "]";
    if ((o.first < 0) == (o.last < 0) && o.first > o.last) {
      return invalid_argument("profile: " + where + " is an empty range " + layer_range(o.first, o.last));
    }
    if (Status s = check_formats(o.formats, false, where); !s.ok()) return s;
    for (const TierField& field : kTierFields) {
      if (field.member != &TierFormats::centre && !(o.formats.*field.member).empty() &&
          (formats.*field.member).empty()) {
        return invalid_argument("profile: " + where + " gives a format for tier " + field.key +
                                ", which the profile does not use");
      }
    }
  }
  return {};
}

std::string Profile::digest() const {
  Profile anonymous = *this;
  anonymous.name.clear();
  anonymous.description.clear();
  anonymous.calibration.clear();
  const std::string text = anonymous.to_json();
  Sha256 hash;
  hash.update(text.data(), text.size());
  return hash.hex().substr(0, 16);
}

Status Profile::set_calibration(std::string_view json) {
  const Json record = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto model = record.is_object() ? record.find("model") : record.end();
  const bool named = record.is_object() && model != record.end() && model->is_object() && model->contains("digest") &&
                     (*model)["digest"].is_string() && !(*model)["digest"].get<std::string>().empty();
  if (!named)
    return invalid_argument("profile: \"calibration\" names no model: \"model\": {\"digest\": ...} is missing");
  calibration = record.dump();
  model_digest = (*model)["digest"].get<std::string>();
  return {};
}

TierFormats Profile::layer_formats(int ordinal, int count) const {
  TierFormats out = formats;
  if (const double factor = low_rank.bands.factor(ordinal, count); factor != 1) {
    for (const TierField& field : kTierFields) out.*field.member = scale_rank(out.*field.member, factor);
  }
  for (const LayerOverride& o : layers) {
    const int first = o.first < 0 ? o.first + count : o.first;
    const int last = o.last < 0 ? o.last + count : o.last;
    if (ordinal < first || ordinal > last) continue;
    for (const TierField& field : kTierFields) {
      if (!(o.formats.*field.member).empty()) out.*field.member = o.formats.*field.member;
    }
  }
  return out;
}

bool Profile::has_low_rank() const {
  const auto any = [](const TierFormats& f) {
    return std::any_of(std::begin(kTierFields), std::end(kTierFields),
                       [&](const TierField& field) { return is_low_rank(f.*field.member); });
  };
  return any(formats) ||
         std::any_of(layers.begin(), layers.end(), [&](const LayerOverride& o) { return any(o.formats); });
}

bool Profile::is_dense() const {
  const auto dense = [](const TierFormats& f) {
    return (f.recent.empty() || f.recent == "f16") && f.anchor.empty() && f.stale1.empty() && f.stale2.empty();
  };
  return router.pages == 0 && formats.recent == "f16" && dense(formats) &&
         std::all_of(layers.begin(), layers.end(), [&](const LayerOverride& o) { return dense(o.formats); });
}

}  // namespace varve
