#include "cli/inspection.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/terminal.h"
#include "cli/text_format.h"

namespace varve::cli {
namespace {

/// "0..4, 6..10, 12": runs of consecutive numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (end - i > 1) out += ".." + std::to_string(numbers[end - 1]);
    i = end;
  }
  return out;
}

/// "8K" for whole multiples of 1,024, else the number.
std::string format_tokens(int64_t tokens) {
  return tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "K" : std::to_string(tokens);
}

AttentionClass describe_class(const engine::ClassPlan& plan, const model::ModelInfo& info) {
  AttentionClass out;
  out.window = plan.window;
  for (const format::LayerGeometry& g : plan.layers) out.layers.push_back(g.layer);
  const auto first = std::find_if(info.kv_layers.begin(), info.kv_layers.end(),
                                  [&](const model::LayerInfo& l) { return l.layer == out.layers.front(); });
  out.q_heads = first->q_heads;
  out.kv_heads = first->kv_heads;
  out.head_dim = first->head_dim;
  out.rope = describe_rope(*first);
  out.dense_bytes_per_token = plan.dense_bytes_per_token;
  return out;
}

/// What a routed token sees.
void print_routers(std::ostream& out, const Inspection& i) {
  const bool any = std::any_of(i.profiles.begin(), i.profiles.end(),
                               [](const ProfileCost& p) { return p.profile.router.pages > 0; });
  if (!any) return;
  out << "\nRouters, layers without a window:\n";
  for (const ProfileCost& p : i.profiles) {
    const Routing& r = p.profile.router;
    if (r.pages == 0) continue;
    out << format_text(
        "  %s: from %d tokens on, a token attends to %d pages of %d, the first page and the last %d "
        "tokens; a selection serves %d decode step%s; prompts %s\n",
        p.profile.name.c_str(), r.from_tokens, r.pages, p.profile.page_tokens, r.window_tokens, r.reroute_steps,
        r.reroute_steps == 1 ? "" : "s",
        r.prefill ? format_text("are routed but for their last %d tokens", r.question_tokens).c_str()
                  : "attend to all pages");
  }
}

Result<ProfileCost> price(const engine::CachePlan& plan, const Profile& profile, const std::vector<int>& lengths,
                          uint64_t budget_bytes, uint64_t weight_bytes) {
  ProfileCost out{.profile = profile, .tiers = {}, .lengths = {}};
  for (size_t t = 0; t < cache::kTiers; ++t) {
    TierCost tier{.tier = cache::tier_name(static_cast<cache::Tier>(t)), .format = {}, .bytes_per_token = 0};
    for (const engine::ClassPlan& c : plan.classes) {
      if (c.slots[t].bytes == 0) continue;
      tier.bytes_per_token += static_cast<double>(c.slots[t].bytes) / c.slots[t].page_tokens;
      tier.format = tier.format.empty() || tier.format == c.format_names[t] ? c.format_names[t] : "mixed";
    }
    if (!tier.format.empty()) out.tiers.push_back(std::move(tier));
  }
  for (const int tokens : lengths) {
    LengthCost cost;
    cost.tokens = tokens;
    cost.dense_bytes = plan.dense_bytes(tokens);
    cost.terms = engine::capacity_terms(plan, profile, budget_bytes, weight_bytes, tokens);
    const auto sessions = engine::capacity(cost.terms);
    if (!sessions.ok()) return sessions.status();
    cost.sessions = *sessions;
    out.lengths.push_back(cost);
  }
  return out;
}

void print_class(std::ostream& out, const AttentionClass& c) {
  const std::string kind = c.window > 0 ? format_text("sliding attention (window %d)", c.window) : "full attention";
  out << format_text("%s, %zu layers: ", kind.c_str(), c.layers.size()) << ranges(c.layers) << "\n";
  out << format_text("  %d query heads on %d KV heads of dimension %d; f16 KV %zu bytes per token\n", c.q_heads,
                     c.kv_heads, c.head_dim, c.dense_bytes_per_token);
  const RopeShape& r = c.rope;
  out << "  RoPE ";
  if (r.geometric) {
    out << format_text("base %.0f", r.base);
    if (r.scale < 0.999) out << format_text(", positions divided by %.3g", 1 / r.scale);
  } else {
    out << "scaled pair by pair (YaRN or factors)";
  }
  out << format_text(" over %d of %d dimensions, pairs %s; slowest turn %.0f tokens\n", r.dims, c.head_dim,
                     r.neox ? format_text("(i, i+%d)", r.dims / 2).c_str() : "(2i, 2i+1)", r.longest_tokens);
}

void print_tiers(std::ostream& out, const std::vector<ProfileCost>& profiles) {
  out << "Bytes per token, all layers, with scales, centres and padding (and the f16 rows each session keeps):\n";
  const char* const kColumns[] = {"recent", "anchor", "stale1", "stale2"};
  std::vector<std::string> lines = {format_text("  %-14s", "profile")};
  for (const ProfileCost& p : profiles) lines.push_back(format_text("  %-14s", p.profile.name.c_str()));
  for (const char* column : kColumns) {
    std::vector<std::string> cells = {column};
    for (const ProfileCost& p : profiles) {
      const auto tier =
          std::find_if(p.tiers.begin(), p.tiers.end(), [&](const TierCost& t) { return t.tier == column; });
      cells.push_back(tier == p.tiers.end() ? "-"
                                            : format_text("%s %.1f", tier->format.c_str(), tier->bytes_per_token));
    }
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size() + 2);
    for (size_t i = 0; i < lines.size(); ++i) lines[i] += std::string(width - cells[i].size(), ' ') + cells[i];
  }
  out << lines[0] << format_text("%14s\n", "exact rows");
  for (size_t i = 0; i < profiles.size(); ++i) {
    const std::vector<LengthCost>& lengths = profiles[i].lengths;
    const uint64_t strips = lengths.empty() ? 0 : lengths[0].terms.fixed_bytes;
    out << lines[i + 1] << format_text("%14s\n", strips == 0 ? "-" : format_bytes(strips).c_str());
  }
}

void print_lengths(std::ostream& out, const Inspection& i) {
  const bool capacity = i.budget_bytes != 0;
  out << "Allocated bytes of one session, once its old pages are converted:\n";
  out << format_text("  %-9s%-14s%12s%12s%10s", "context", "profile", "f16", "allocated", "smaller");
  out << (capacity ? format_text("%12s\n", "sessions") : "\n");
  bool beyond = false;
  const size_t rows = i.profiles.empty() ? 0 : i.profiles[0].lengths.size();
  for (size_t l = 0; l < rows; ++l) {
    for (const ProfileCost& p : i.profiles) {
      const LengthCost& c = p.lengths[l];
      const bool over = c.tokens > i.model.context_train;
      beyond = beyond || over;
      out << format_text("  %-9s%-14s%12s%12s%9.2fx", (format_tokens(c.tokens) + (over ? " *" : "")).c_str(),
                         p.profile.name.c_str(), format_bytes(c.dense_bytes).c_str(),
                         format_bytes(c.physical_bytes()).c_str(), c.ratio());
      out << (capacity ? format_text("%12llu\n", static_cast<unsigned long long>(c.sessions)) : "\n");
    }
  }
  if (beyond) out << format_text("  * beyond the %d tokens the model was trained on\n", i.model.context_train);
  if (!capacity) return;
  out << "Sessions = floor((M - W) / (D + K)), equation 14 of the Minima-KV paper, with\n";
  out << format_text("  M  %s, the budget\n", format_bytes(i.budget_bytes).c_str());
  out << format_text("  W  %s, the model file's bytes, and one stale page that is kept free for conversions\n",
                     format_bytes(i.model.file_bytes).c_str());
  out << "  D  the exact rows; K  the pages (D + K is the column \"allocated\")\n";
  if (i.budget_bytes <= i.model.file_bytes) out << "  The budget does not hold the weights.\n";
}

void print_bias(std::ostream& out, const std::vector<float>& norms) {
  if (norms.empty()) {
    out << "The model has no key bias.\n";
    return;
  }
  out << "Key bias, L2 norm by KV layer:\n";
  const std::vector<bool> outliers = bias_outliers(norms);
  constexpr size_t kColumns = 8;
  for (size_t l = 0; l < norms.size(); ++l) {
    const bool row_ends = l % kColumns == kColumns - 1 || l + 1 == norms.size();
    out << (l % kColumns == 0 ? "  " : "") << format_text("%3zu %7.1f", l, double(norms[l]));
    out << (outliers[l] ? "*" : row_ends ? "" : " ") << (row_ends ? "\n" : "");
  }
  if (std::find(outliers.begin(), outliers.end(), true) == outliers.end()) return;
  out << format_text(
      "  * more than %.0f times the median: all keys of the layer share an offset that turns with position.\n",
      kBiasOutlier);
  out << "    Coding them in few bits needs the rotary centre (\"centre\": \"rotary\" in the profile).\n";
}

}  // namespace

RopeShape describe_rope(const model::LayerInfo& layer) {
  const std::vector<float>& theta = layer.theta;
  RopeShape out;
  out.dims = static_cast<int>(theta.size()) * 2;
  out.neox = layer.neox;
  if (theta.empty()) return out;
  out.scale = theta.front();
  out.longest_tokens = 2 * 3.14159265358979323846 / theta.back();
  // In a geometric series the last pair gives the base, and all between lie on it.
  const size_t last = theta.size() - 1;
  if (last == 0) return out;
  const double log_base = std::log(double(theta.front()) / theta.back()) * out.dims / (2.0 * double(last));
  out.geometric = true;
  for (size_t i = 0; i <= last; ++i) {
    const double expected = theta.front() * std::exp(-log_base * 2.0 * double(i) / out.dims);
    out.geometric = out.geometric && std::abs(theta[i] / expected - 1) < 1e-3;
  }
  if (out.geometric) out.base = std::exp(log_base);
  return out;
}

std::vector<bool> bias_outliers(const std::vector<float>& norms) {
  if (norms.empty()) return {};
  std::vector<float> sorted = norms;
  std::nth_element(sorted.begin(), sorted.begin() + std::ptrdiff_t(sorted.size() / 2), sorted.end());
  const double median = sorted[sorted.size() / 2];
  std::vector<bool> out;
  for (const float n : norms) out.push_back(n > kBiasOutlier * median);
  return out;
}

Result<Inspection> inspect_model(model::ModelInfo model, const std::vector<Profile>& profiles,
                                 const std::vector<int>& lengths, uint64_t budget_bytes) {
  Inspection out;
  out.model = std::move(model);
  out.budget_bytes = budget_bytes;
  for (const Profile& profile : profiles) {
    const auto plan = engine::plan_cache(out.model, profile);
    if (!plan.ok()) return plan.status();
    if (out.classes.empty()) {  // the classes do not depend on the profile
      for (const engine::ClassPlan& c : plan->classes) {
        out.classes.push_back(describe_class(c, out.model));
        out.dense_bytes_per_token += c.dense_bytes_per_token;
      }
    }
    auto cost = price(*plan, profile, lengths, budget_bytes, out.model.file_bytes);
    if (!cost.ok()) return cost.status();
    out.profiles.push_back(std::move(*cost));
  }
  for (const model::LayerInfo& l : out.model.kv_layers) out.k_bias_norms.push_back(l.k_bias_norm);
  if (std::all_of(out.k_bias_norms.begin(), out.k_bias_norms.end(), [](float n) { return n == 0; })) {
    out.k_bias_norms.clear();
  }
  return out;
}

namespace {

nlohmann::ordered_json router_json(const Routing& r) {
  if (r.pages == 0) return nullptr;
  return {{"pages", r.pages},
          {"from_tokens", r.from_tokens},
          {"window_tokens", r.window_tokens},
          {"reroute_steps", r.reroute_steps},
          {"prefill", r.prefill},
          {"question_tokens", r.question_tokens}};
}

}  // namespace

nlohmann::ordered_json inspection_json(const Inspection& i) {
  using Json = nlohmann::ordered_json;
  Json classes = Json::array();
  for (const AttentionClass& c : i.classes) {
    classes.push_back({{"window", c.window},
                       {"layers", c.layers},
                       {"query_heads", c.q_heads},
                       {"kv_heads", c.kv_heads},
                       {"head_dim", c.head_dim},
                       {"dense_bytes_per_token", c.dense_bytes_per_token},
                       {"rope",
                        {{"dims", c.rope.dims},
                         {"pairing", c.rope.neox ? "halves" : "interleaved"},
                         {"base", c.rope.geometric ? Json(c.rope.base) : Json(nullptr)},
                         {"scale", c.rope.scale},
                         {"longest_tokens", c.rope.longest_tokens}}}});
  }
  Json profiles = Json::array();
  for (const ProfileCost& p : i.profiles) {
    Json tiers = Json::array();
    for (const TierCost& t : p.tiers) {
      tiers.push_back({{"tier", t.tier}, {"format", t.format}, {"bytes_per_token", t.bytes_per_token}});
    }
    Json at = Json::object();
    for (const LengthCost& c : p.lengths) {
      Json entry = {{"dense_bytes", c.dense_bytes},
                    {"physical_bytes", c.physical_bytes()},
                    {"fixed_bytes", c.terms.fixed_bytes},
                    {"ratio", c.ratio()}};
      if (i.budget_bytes != 0) {
        entry["resident_bytes"] = c.terms.resident_bytes;
        entry["sessions"] = c.sessions;
      }
      at[std::to_string(c.tokens)] = std::move(entry);
    }
    profiles.push_back({{"name", p.profile.name},
                        {"digest", p.profile.digest()},
                        {"page_tokens", p.profile.page_tokens},
                        {"recent_tokens", p.profile.recent_tokens},
                        {"router", router_json(p.profile.router)},
                        {"tiers", std::move(tiers)},
                        {"at", std::move(at)}});
  }
  return {{"model",
           {{"file", i.model.path},
            {"file_bytes", i.model.file_bytes},
            {"name", i.model.name},
            {"architecture", i.model.architecture},
            {"digest", i.model.digest},
            {"parameters", i.model.parameters},
            {"layers", i.model.layers},
            {"kv_layers", i.model.kv_layers.size()},
            {"vocabulary", i.model.vocabulary},
            {"context_tokens", i.model.context_train},
            {"dense_bytes_per_token", i.dense_bytes_per_token}}},
          {"classes", std::move(classes)},
          {"profiles", std::move(profiles)},
          {"budget_bytes", i.budget_bytes != 0 ? Json(i.budget_bytes) : Json(nullptr)},
          {"k_bias_norms", i.k_bias_norms}};
}

void print_inspection(std::ostream& out, const Inspection& i) {
  const model::ModelInfo& m = i.model;
  out << std::filesystem::path(m.path).filename().string() << ": " << m.architecture;
  if (!m.name.empty()) out << " \"" << m.name << "\"";
  out << format_text("\n  %.1f M parameters in %s, %d layers (%zu own KV), vocabulary %d, trained on %d tokens\n",
                     static_cast<double>(m.parameters) / 1e6, format_bytes(m.file_bytes).c_str(), m.layers,
                     m.kv_layers.size(), m.vocabulary, m.context_train);
  out << format_text("  f16 KV cache: %zu bytes (%s) per token\n\n", i.dense_bytes_per_token,
                     format_bytes(i.dense_bytes_per_token).c_str());
  for (const AttentionClass& c : i.classes) print_class(out, c);
  out << "\n";
  print_tiers(out, i.profiles);
  out << "\n";
  print_lengths(out, i);
  print_routers(out, i);
  out << "\n";
  print_bias(out, i.k_bias_norms);
}

}  // namespace varve::cli
