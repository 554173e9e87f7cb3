#include "eval/run/record.h"

#include <cstdio>
#include <cstdlib>

#include "base/sha256.h"

namespace varve::eval {
namespace {

using Json = nlohmann::ordered_json;

/// Six significant digits: what a figure is worth, and a third of the bytes of a double's own digits.
double shorten(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", v);
  return std::strtod(buffer, nullptr);
}

Json divergence_json(const Divergences& d) {
  Json kl = Json::array();
  for (const double v : d.kl) kl.push_back(shorten(v));
  return {{"kl", std::move(kl)},
          {"same_top1", d.same_top},
          {"nll_reference", shorten(d.nll_reference)},
          {"nll", shorten(d.nll)}};
}

Divergences parse_divergence(const Json& json) {
  Divergences d;
  d.kl = json.at("kl").get<std::vector<double>>();
  json.at("same_top1").get_to(d.same_top);
  json.at("nll_reference").get_to(d.nll_reference);
  json.at("nll").get_to(d.nll);
  return d;
}

Json bytes_json(const ArmBytes& b) {
  Json tiers = Json::array();
  for (const TierStats& t : b.kv.tiers) {
    tiers.push_back(
        {{"tier", t.tier}, {"format", t.format}, {"pages", t.pages}, {"tokens", t.tokens}, {"bytes", t.bytes}});
  }
  return {{"dense_bytes", b.kv.dense_bytes},     {"physical_bytes", b.kv.physical_bytes},
          {"payload_bytes", b.kv.payload_bytes}, {"metadata_bytes", b.kv.metadata_bytes},
          {"scratch_bytes", b.kv.scratch_bytes}, {"allocated_bytes", b.allocated_bytes},
          {"ratio", shorten(b.kv.ratio())},      {"tiers", std::move(tiers)}};
}

ArmBytes parse_bytes(const Json& json) {
  ArmBytes b;
  json.at("dense_bytes").get_to(b.kv.dense_bytes);
  json.at("physical_bytes").get_to(b.kv.physical_bytes);
  json.at("payload_bytes").get_to(b.kv.payload_bytes);
  json.at("metadata_bytes").get_to(b.kv.metadata_bytes);
  json.at("scratch_bytes").get_to(b.kv.scratch_bytes);
  json.at("allocated_bytes").get_to(b.allocated_bytes);
  for (const Json& t : json.at("tiers")) {
    TierStats tier;
    t.at("tier").get_to(tier.tier);
    t.at("format").get_to(tier.format);
    t.at("pages").get_to(tier.pages);
    t.at("tokens").get_to(tier.tokens);
    t.at("bytes").get_to(tier.bytes);
    b.kv.tiers.push_back(std::move(tier));
  }
  return b;
}

/// Generated text may be cut inside a character; JSON holds whole ones.
std::string valid_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

void Divergences::add(const TokenDivergence& t) {
  kl.push_back(t.kl);
  same_top += t.same_top;
  nll_reference += t.nll_p;
  nll += t.nll_q;
}

Json record_json(const ItemRecord& r) {
  Json json = {{"id", r.id},
               {"task", r.task},
               {"group", r.group},
               {"length", r.length},
               {"arm", r.arm},
               {"mode", r.mode},
               {"profile_digest", r.profile_digest},
               {"model_digest", r.model_digest},
               {"prompt_sha256", r.prompt_sha256},
               {"prompt_tokens", r.prompt_tokens},
               {"dropped_tokens", r.dropped_tokens},
               {"score", shorten(r.score)},
               {"answer", valid_utf8(r.answer)},
               {"references", r.references},
               {"depths", r.depths}};
  if (!r.choice_log_p.empty()) json["choice_log_p"] = r.choice_log_p;
  json["divergence"] = divergence_json(r.divergence);
  if (!r.peer_divergence.kl.empty()) json["peer_divergence"] = divergence_json(r.peer_divergence);
  if (!r.strata.empty()) {
    Json strata = Json::object();
    for (const auto& [name, s] : r.strata) {
      strata[name] = {{"n", s.n}, {"kl_sum", shorten(s.kl_sum)}, {"same_top1", s.same_top}};
    }
    json["strata"] = std::move(strata);
  }
  json["context_tokens"] = r.context_tokens;
  json["kv"] = bytes_json(r.bytes);
  json["fallbacks"] = Json::object();
  for (const auto& [reason, count] : r.fallbacks) json["fallbacks"][reason] = count;
  json["seconds"] = shorten(r.seconds);
  return json;
}

Result<ItemRecord> parse_record(const Json& json) {
  ItemRecord r;
  try {
    json.at("id").get_to(r.id);
    json.at("task").get_to(r.task);
    json.at("group").get_to(r.group);
    json.at("length").get_to(r.length);
    json.at("arm").get_to(r.arm);
    json.at("mode").get_to(r.mode);
    json.at("profile_digest").get_to(r.profile_digest);
    json.at("model_digest").get_to(r.model_digest);
    json.at("prompt_sha256").get_to(r.prompt_sha256);
    json.at("prompt_tokens").get_to(r.prompt_tokens);
    json.at("dropped_tokens").get_to(r.dropped_tokens);
    json.at("score").get_to(r.score);
    json.at("answer").get_to(r.answer);
    json.at("references").get_to(r.references);
    json.at("depths").get_to(r.depths);
    if (json.contains("choice_log_p")) json.at("choice_log_p").get_to(r.choice_log_p);
    r.divergence = parse_divergence(json.at("divergence"));
    if (json.contains("peer_divergence")) r.peer_divergence = parse_divergence(json.at("peer_divergence"));
    if (json.contains("strata")) {
      for (const auto& [name, s] : json.at("strata").items()) {
        Stratum& stratum = r.strata[name];
        s.at("n").get_to(stratum.n);
        s.at("kl_sum").get_to(stratum.kl_sum);
        s.at("same_top1").get_to(stratum.same_top);
      }
    }
    json.at("context_tokens").get_to(r.context_tokens);
    r.bytes = parse_bytes(json.at("kv"));
    for (const auto& [reason, count] : json.at("fallbacks").items()) r.fallbacks[reason] = count.get<uint64_t>();
    json.at("seconds").get_to(r.seconds);
  } catch (const Json::exception& e) {
    return corrupt(std::string("not a line of an evaluation: ") + e.what());
  }
  return r;
}

std::string hash_tokens(std::span<const int32_t> tokens) {
  Sha256 hash;
  hash.update(tokens.data(), tokens.size_bytes());
  return hash.hex().substr(0, 16);
}

}  // namespace varve::eval
