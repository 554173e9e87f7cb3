#include "engine/lifecycle.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "attention/convert.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "cache/lifecycle/age_policy.h"
#include "cache/lifecycle/score_policy.h"
#include "format/page_header.h"

namespace varve::engine {
namespace {

using cache::Tier;

format::TokenDigest digest_tokens(std::span<const int32_t> tokens) {
  Sha256 hash;
  hash.update(tokens.data(), tokens.size_bytes());
  const std::string hex = hash.hex();
  format::TokenDigest out{};
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return out;
}

std::vector<format::LayerFormat> formats_of(const format::SlotLayout& layout) {
  std::vector<format::LayerFormat> formats;
  for (const format::LayerSlot& l : layout.layers) formats.push_back(l.format);
  return formats;
}

Transition to_public(const cache::TransitionEvent& e, int window) {
  const char* outcome = e.outcome == cache::Outcome::kPublished   ? "published"
                        : e.outcome == cache::Outcome::kAbandoned ? "abandoned"
                                                                  : "refused";
  return {.step = e.step,
          .session = e.sequence,
          .page = e.page,
          .page_start = e.start,
          .window = window,
          .from = cache::tier_name(e.from),
          .to = cache::tier_name(e.to),
          .why = e.why,
          .how = e.how,
          .outcome = outcome,
          .score = e.score,
          .from_bytes = e.from_bytes,
          .to_bytes = e.to_bytes,
          .microseconds = e.microseconds};
}

cache::ScorePolicy::Options score_options(const Profile& profile) {
  const Scoring& s = profile.scoring;
  cache::ScorePolicy::Options o;
  o.recent_tokens = profile.recent_tokens;
  o.anchor_tokens = s.on ? s.anchor_tokens : 0;
  o.weight_score = s.score_weight;
  o.weight_age = s.age_weight;
  o.weight_shared = 0;
  o.enter_ratio = s.enter_ratio;
  o.least_score = s.least_score;
  o.leave_score = s.leave_score;
  return o;
}

int units_per_page(const ClassPlan& c) {
  int units = 0;
  for (const format::LayerGeometry& l : c.layers) units += l.kv_heads;
  return units;
}

}  // namespace

Lifecycle::Lifecycle(cache::Cache& cache, const CachePlan& plan, const Profile& profile,
                     const kernels::Kernels& kernels, model::Executor& executor)
    : cache_(cache),
      plan_(plan),
      kernels_(kernels),
      executor_(executor),
      encode_{.inner_product_norm = profile.inner_product_norm},
      convert_tokens_per_step_(profile.convert_tokens_per_step) {
  for (const ClassPlan& c : plan.classes) {
    auto& prints = fingerprints_.emplace_back();
    for (size_t t = 0; t < cache::kTiers; ++t) {
      if (c.slots[t].bytes != 0) prints[t] = format::page_fingerprint(c.layers, formats_of(c.slots[t]), encode_);
    }
    for (const format::LayerGeometry& l : c.layers) {
      scratch_floats_per_thread_ =
          std::max(scratch_floats_per_thread_, attention::convert_scratch_floats(l.head.head_dim, profile.page_tokens));
    }
  }
}

Result<std::unique_ptr<Lifecycle>> Lifecycle::create(cache::Cache& cache, const CachePlan& plan,
                                                     const EngineOptions& engine, const kernels::Kernels& kernels,
                                                     model::Executor& executor, PageTrace* page_trace) {
  const Profile& profile = engine.profile;
  std::unique_ptr<Lifecycle> out(new Lifecycle(cache, plan, profile, kernels, executor));
  cache::Controller::Options options;
  bool converts = false, anchors = false;
  for (const ClassPlan& c : plan.classes) {
    options.units_per_page.push_back(units_per_page(c));
    converts |= c.uses(Tier::kStale1);
    anchors |= c.uses(Tier::kAnchor);
  }
  if (!converts) return out;
  if (anchors) {
    out->policy_ = std::make_unique<cache::ScorePolicy>(score_options(profile));
    auto fidelity = Fidelity::create(cache, engine);
    if (!fidelity.ok()) return fidelity.status();
    out->fidelity_ = std::move(*fidelity);
  } else {
    out->policy_ = std::make_unique<cache::AgePolicy>(profile.recent_tokens);
  }
  options.score_decay = profile.scoring.decay;
  options.dwell_tokens = profile.scoring.dwell_tokens;
  cache::TraceFn trace;
  if (page_trace != nullptr) {
    trace = [&cache, page_trace](const cache::TransitionEvent& e) {
      page_trace->moved(to_public(e, cache.config().classes[e.cls].window), e.page, e.to);
    };
  }
  options.layouts = out->fingerprints_;
  auto controller =
      cache::Controller::create(&cache, out->policy_.get(), options, std::move(trace), out->fidelity_.get());
  if (!controller.ok()) return controller.status();
  out->controller_ = std::move(*controller);
  return out;
}

Lifecycle::~Lifecycle() = default;

void Lifecycle::write_headers(cache::SequenceId sequence, std::span<const int32_t> tokens, int added) {
  for (size_t c = 0; c < plan_.classes.size(); ++c) {
    const int page = cache_.config().classes[c].page_tokens;
    const int length = static_cast<int>(tokens.size());
    const int first_sealed = (length - added) / page * page;
    if (length / page * page == first_sealed) continue;
    for (const cache::BlockEntry& b : cache_.blocks(sequence, c)) {
      if (!b.sealed || b.start < first_sealed) continue;
      const format::PageIdentity identity{
          .start = static_cast<uint32_t>(b.start),
          .fingerprint = fingerprint(c, b.ref.tier),
          .generation = 0,
          .token_digest = digest_tokens(tokens.first(static_cast<size_t>(b.start + page)))};
      format::write_page_header(plan_.classes[c].slot(b.ref.tier), identity, cache_.slot(c, b.ref));
    }
  }
}

void Lifecycle::settled(cache::SequenceId session, int added) {
  if (controller_) controller_->settled(session, added);
}

Status Lifecycle::observe(cache::SequenceId session, size_t cls, std::span<const float> mass) {
  return controller_ ? controller_->observe(session, cls, mass) : Status();
}

Status Lifecycle::mark(cache::SequenceId session, int begin, int end) {
  return controller_ ? controller_->mark(session, begin, end) : Status();
}

void Lifecycle::forked(cache::SequenceId from, cache::SequenceId to) {
  if (controller_) controller_->inherit(from, to);
}

void Lifecycle::finished() {
  // Ends the recomputations that its promotions wait for. One whose page is being converted, for another holder now, is
  // read to the end and needs the session no more.
  if (controller_) controller_->collect();
}

void Lifecycle::advance(int64_t step) {
  if (!controller_) return;
  step_seconds_ = 0;
  controller_->advance(step, convert_tokens_per_step_,
                       [this](std::span<const cache::WorkUnit> units) { convert(units); });
}

size_t Lifecycle::relieve(int64_t step, size_t bytes) {
  if (!controller_) return 0;
  return controller_->relieve(step, bytes, [this](std::span<const cache::WorkUnit> units) { convert(units); });
}

void Lifecycle::flush(int64_t step, cache::SequenceId session) {
  if (!controller_) return;
  controller_->flush(step, session, [this](std::span<const cache::WorkUnit> units) { convert(units); });
}

void Lifecycle::convert(std::span<const cache::WorkUnit> units) {
  if (units.empty()) return;
  const double start = now_s();
  if (scratch_.size() == 0) {
    scratch_ = AlignedBuffer(scratch_floats_per_thread_ * sizeof(float) * static_cast<size_t>(executor_.threads()));
  }
  std::atomic<size_t> next{0};
  executor_.parallel([&](int thread, int) {
    float* scratch =
        reinterpret_cast<float*>(scratch_.data()) + scratch_floats_per_thread_ * static_cast<size_t>(thread);
    for (size_t i = next++; i < units.size(); i = next++) convert_unit(units[i], scratch);
  });
  for (const cache::WorkUnit& unit : units) {
    const ClassPlan& c = plan_.classes[unit.cls];
    if (unit.unit + 1 != units_per_page(c)) continue;  // units come in order: the last one completes the page
    format::PageHeader source;
    std::memcpy(&source, unit.src, sizeof(source));
    const format::PageIdentity identity{.start = source.page_start,
                                        .fingerprint = fingerprint(unit.cls, unit.to),
                                        .generation = source.generation + 1,
                                        .token_digest = source.token_digest};
    format::write_page_header(c.slot(unit.to), identity, unit.dst);
  }
  // For the report alone: no decision reads a clock.
  const double seconds = now_s() - start;
  seconds_ += seconds;
  step_seconds_ += seconds;
  worst_step_seconds_ = std::max(worst_step_seconds_, step_seconds_);
}

void Lifecycle::convert_unit(const cache::WorkUnit& unit, float* scratch) {
  const ClassPlan& c = plan_.classes[unit.cls];
  int kv_head = unit.unit;
  size_t ordinal = 0;
  while (kv_head >= c.layers[ordinal].kv_heads) kv_head -= c.layers[ordinal++].kv_heads;
  const format::SlotLayout& from = c.slot(unit.from);
  const format::SlotLayout& to = c.slot(unit.to);
  if (from.layers[ordinal].format == to.layers[ordinal].format) {
    const int o = static_cast<int>(ordinal);
    std::memcpy(unit.dst + to.plane(o, kv_head), unit.src + from.plane(o, kv_head), to.layers[ordinal].plane.bytes);
    return;
  }
  const bool strip = !format::is_direct(c.slot(Tier::kRecent).layers[ordinal].format);
  const int exact_tokens = unit.start == 0 && strip ? c.strip.sink_tokens : 0;
  attention::convert_plane(c.layers[ordinal], from, to, encode_, kernels_, static_cast<int>(ordinal), kv_head,
                           exact_tokens, unit.src, unit.dst, scratch);
}

std::string Lifecycle::fingerprint() const {
  std::string out;
  for (const auto& tiers : fingerprints_) {
    for (const uint64_t f : tiers) out.append(reinterpret_cast<const char*>(&f), sizeof(f));
  }
  return out;
}

size_t Lifecycle::scratch_bytes() const {
  return scratch_.size() + (fidelity_ && fidelity_->kept() != nullptr ? fidelity_->kept()->buffer_bytes() : 0);
}

void Lifecycle::report(EngineStats& stats) const {
  if (!controller_) return;
  stats.conversion_s = seconds_;
  stats.worst_conversion_s = worst_step_seconds_;
  const cache::ControllerStats s = controller_->stats();
  for (const auto& from : s.transitions) {
    for (const cache::TransitionCounts& counts : from) stats.transitions += counts.published;
  }
  stats.converted_tokens = s.converted_tokens;
  stats.promotions = s.promotions;
  for (size_t r = 0; r < cache::kRefusals; ++r) {
    if (s.refused[r] != 0) {
      stats.fallbacks[std::string("retier_") + cache::refusal_name(static_cast<cache::Refusal>(r))] += s.refused[r];
    }
  }
  if (s.published_pressure != 0) stats.fallbacks["demoted_pressure"] += s.published_pressure;
  if (const auto lossy = s.promotions.find("lossy"); lossy != s.promotions.end()) {
    stats.fallbacks["promote_lossy"] += lossy->second;
  }
  if (!fidelity_) return;
  if (const Recompute* r = fidelity_->recompute(); r != nullptr) {
    stats.recomputed_tokens = r->tokens();
    for (const auto& [reason, count] : r->refused()) stats.fallbacks[reason] += count;
  }
  if (const cache::StoredRefinements* kept = fidelity_->kept(); kept != nullptr) {
    stats.refinement_bytes = kept->store().allocated_bytes();
    stats.refinement_place = kept->store().place();
    const cache::StoreStats store = kept->store().stats();
    const std::pair<const char*, uint64_t> failures[] = {{"refinement_full", store.full},
                                                         {"refinement_write_errors", store.write_errors},
                                                         {"refinement_read_errors", store.read_errors},
                                                         {"refinement_corrupt", store.corrupt}};
    for (const auto& [reason, count] : failures) {
      if (count != 0) stats.fallbacks[reason] += count;
    }
  }
}

}  // namespace varve::engine
