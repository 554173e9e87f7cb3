#include "cli/trace/summary.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

Json event_json(const TraceEvent& e) {
  return {{"step", e.step},
          {"session", e.session},
          {"window", e.window},
          {"page_start", e.page_start},
          {"from", place_name(e.from)},
          {"to", place_name(e.to)},
          {"why", e.why},
          {"how", e.how},
          {"score", e.score ? Json(*e.score) : Json(nullptr)},
          {"to_bytes", e.to_bytes},
          {"us", e.microseconds}};
}

Json bytes_json(const Picture& picture) {
  Json out = {{"step", Json::array()}};
  for (size_t c = 0; c < picture.bytes.size(); ++c) out["step"].push_back(picture.column_end(c));
  for (size_t t = 0; t < cache::kTiers; ++t) {
    Json& column = out[cache::tier_name(static_cast<cache::Tier>(t))] = Json::array();
    for (const TierAmounts& b : picture.bytes) column.push_back(b[t]);
  }
  return out;
}

}  // namespace

Json trace_json(const Picture& picture) {
  const TraceSurvey& s = picture.survey;
  Json tiers = Json::object();
  for (const auto& [tier, format] : s.header.tiers) tiers[tier] = format;
  Json sessions = Json::array();
  for (const auto& [key, span] : s.panels) {
    sessions.push_back({{"session", key.session},
                        {"window", key.window},
                        {"events", span.events},
                        {"first_step", span.first_step},
                        {"last_step", span.last_step},
                        {"tokens", span.last_page_start + s.page_tokens}});
  }
  Json moves = Json::array();
  for (const auto& [key, count] : s.moves) {
    moves.push_back({{"from", place_name(key.from)},
                     {"to", place_name(key.to)},
                     {"why", key.why},
                     {"how", key.how},
                     {"published", count.published},
                     {"abandoned", count.abandoned},
                     {"refused", count.refused},
                     {"bytes", count.bytes},
                     {"us_max", count.most_microseconds}});
  }
  Json promoted = Json::array();
  for (const PromotionMark& m : picture.marks) promoted.push_back(event_json(m.event));
  Json refused = Json::object();
  for (const auto& [reason, count] : s.refused) refused[reason] = count;
  return {{"trace",
           {{"file", s.path},
            {"header", s.header.present},
            {"model", s.header.model},
            {"profile", s.header.profile},
            {"page_tokens", s.page_tokens},
            {"recent_tokens", s.header.recent_tokens},
            {"tiers", std::move(tiers)}}},
          {"events", s.events},
          {"first_step", s.first_step},
          {"last_step", s.last_step},
          {"sessions", std::move(sessions)},
          {"bytes", bytes_json(picture)},
          {"moves", std::move(moves)},
          {"promotions",
           {{"published", s.promotions.published},
            {"lossy", s.promotions.lossy},
            {"bytes", s.promotions.bytes},
            {"first", std::move(promoted)}}},
          {"slowest", s.slowest ? event_json(*s.slowest) : Json(nullptr)},
          {"refused", std::move(refused)},
          {"notes", picture.notes()}};
}

}  // namespace varve::cli
