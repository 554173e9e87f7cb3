#include "engine/lifecycle.h"

#include <algorithm>
#include <atomic>
#include <cstring>

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

format::EncodeOptions encode_options(const Profile& profile) {
  format::EncodeOptions options;
  options.inner_product_norm = profile.inner_product_norm;
  const LowRankPages& p = profile.low_rank;
  options.low_rank = {.energy = p.energy,
                      .least_rank = p.least_rank,
                      .seed = p.seed,
                      .oversample = p.oversample,
                      .power_iterations = p.power_iterations,
                      .coverage_bonus = static_cast<float>(p.coverage_bonus),
                      .edge_bonus = static_cast<float>(p.edge_bonus),
                      .selection = content_digest(p.content)};
  return options;
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

bool is_low_rank_anywhere(const ClassPlan& c, size_t ordinal) {
  return std::any_of(c.slots.begin(), c.slots.end(), [&](const format::SlotLayout& slot) {
    return slot.bytes != 0 && slot.layers[ordinal].format.is_low_rank();
  });
}

}  // namespace

Lifecycle::Lifecycle(const Parts& parts, const Profile& profile)
    : cache_(parts.cache),
      plan_(parts.plan),
      kernels_(parts.kernels),
      executor_(parts.executor),
      encode_(encode_options(profile)),
      convert_tokens_per_step_(profile.convert_tokens_per_step) {
  for (const ClassPlan& c : plan_.classes) plan_class(c, profile);
  if (max_rank_ > 0) traits_ = std::make_unique<PageTraits>(parts.model, profile.low_rank.content, parts.tokens_of);
}

void Lifecycle::plan_class(const ClassPlan& c, const Profile& profile) {
  auto& prints = fingerprints_.emplace_back();
  for (size_t t = 0; t < cache::kTiers; ++t) {
    if (c.slots[t].bytes != 0) prints[t] = format::page_fingerprint(c.layers, formats_of(c.slots[t]), encode_);
  }
  std::vector<LayerPart>& parts = parts_.emplace_back();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const format::LayerGeometry& layer = c.layers[i];
    const int ordinal = static_cast<int>(i);
    scratch_floats_per_thread_ = std::max(
        scratch_floats_per_thread_, attention::convert_scratch_floats(layer.head.head_dim, profile.page_tokens));
    if (!is_low_rank_anywhere(c, i)) {
      for (int h = 0; h < layer.kv_heads; ++h) parts.push_back({ordinal, h, 1});
      continue;
    }
    parts.push_back({ordinal, 0, layer.kv_heads});
    max_head_dim_ = std::max(max_head_dim_, layer.head.head_dim);
    for (const format::SlotLayout& slot : c.slots) {
      if (slot.bytes == 0 || !slot.layers[i].format.is_low_rank()) continue;
      const format::LowRank& format = slot.layers[i].format.low_rank;
      max_rank_ = std::max(max_rank_, format.rank);
      scratch_floats_per_thread_ = std::max(
          scratch_floats_per_thread_, attention::block_scratch_floats(layer, format, profile.page_tokens, encode_));
      if (!format.rotated && layer.head.rotary != nullptr) {
        turns_.try_emplace(layer.head.rotary, *layer.head.rotary, profile.page_tokens / format::kTileTokens);
      }
    }
  }
}

Result<std::unique_ptr<Lifecycle>> Lifecycle::create(const Parts& parts, const EngineOptions& engine) {
  const Profile& profile = engine.profile;
  cache::Cache& cache = parts.cache;
  PageTrace* const page_trace = parts.trace;
  std::unique_ptr<Lifecycle> out(new Lifecycle(parts, profile));
  cache::Controller::Options options;
  bool converts = false, anchors = false;
  for (const ClassPlan& c : parts.plan.classes) {
    options.units_per_page.push_back(static_cast<int>(out->parts_[options.units_per_page.size()].size()));
    converts |= c.uses(Tier::kStale1);
    anchors |= c.uses(Tier::kAnchor);
  }
  if (!converts) return out;
  // An SVD's scratch is large enough to be refused; what else conversions need is not, and waits for the first.
  if (out->max_rank_ > 0 && !out->reserve_threads()) {
    return resource_exhausted("no memory for low-rank conversions: " + std::to_string(parts.executor.threads()) +
                              " threads take " + std::to_string(out->scratch_floats_per_thread_ * sizeof(float)) +
                              " bytes each");
  }
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

bool Lifecycle::reserve_threads() {
  if (!threads_.empty()) return true;
  std::vector<ThreadState> threads(static_cast<size_t>(executor_.threads()));
  for (ThreadState& t : threads) {
    t.scratch = AlignedBuffer(scratch_floats_per_thread_ * sizeof(float));
    if (t.scratch.data() == nullptr) return false;
    if (max_rank_ > 0 && !t.blocks.reserve(max_rank_, max_head_dim_, 1)) return false;
  }
  threads_ = std::move(threads);
  return true;
}

void Lifecycle::convert(std::span<const cache::WorkUnit> units) {
  if (units.empty()) return;
  const double start = now_s();
  reserve_threads();
  if (traits_) traits_->collect(cache_);
  std::vector<const format::TokenTraits*> traits(units.size());
  for (size_t i = 0; i < units.size(); ++i) traits[i] = traits_of(units[i]);
  std::vector<BlockResult> blocks(units.size());
  std::atomic<size_t> next{0};
  executor_.parallel([&](int thread, int) {
    ThreadState& state = threads_[static_cast<size_t>(thread)];
    for (size_t i = next++; i < units.size(); i = next++) blocks[i] = convert_unit(units[i], traits[i], state);
  });
  for (const BlockResult& b : blocks) count(b);
  for (const cache::WorkUnit& unit : units) {
    if (unit.unit + 1 != static_cast<int>(parts_[unit.cls].size())) continue;  // in order: the last completes the page
    format::PageHeader source;
    std::memcpy(&source, unit.src, sizeof(source));
    const format::PageIdentity identity{.start = source.page_start,
                                        .fingerprint = fingerprint(unit.cls, unit.to),
                                        .generation = source.generation + 1,
                                        .token_digest = source.token_digest};
    format::write_page_header(plan_.classes[unit.cls].slot(unit.to), identity, unit.dst);
    if (traits_) traits_->forget(unit.page);
  }
  // For the report alone: no decision reads a clock.
  const double seconds = now_s() - start;
  seconds_ += seconds;
  step_seconds_ += seconds;
  worst_step_seconds_ = std::max(worst_step_seconds_, step_seconds_);
}

const attention::PageTurn* Lifecycle::turn_of(const ClassPlan& c, size_t ordinal) const {
  const auto it = turns_.find(c.layers[ordinal].head.rotary);
  return it == turns_.end() ? nullptr : &it->second;
}

const format::TokenTraits* Lifecycle::traits_of(const cache::WorkUnit& unit) {
  const ClassPlan& c = plan_.classes[unit.cls];
  const auto ordinal = static_cast<size_t>(parts_[unit.cls][static_cast<size_t>(unit.unit)].ordinal);
  const format::LayerFormat& to = c.slot(unit.to).layers[ordinal].format;
  if (!to.is_low_rank() || to == c.slot(unit.from).layers[ordinal].format) return nullptr;
  const std::optional<cache::PageInfo> page = cache_.page(unit.page);
  return &traits_->of(unit.page, page ? page->holder : 0, unit.start, c.slot(unit.to).page_tokens);
}

Lifecycle::BlockResult Lifecycle::convert_unit(const cache::WorkUnit& unit, const format::TokenTraits* traits,
                                               ThreadState& thread) {
  const ClassPlan& c = plan_.classes[unit.cls];
  const LayerPart& part = parts_[unit.cls][static_cast<size_t>(unit.unit)];
  const auto ordinal = static_cast<size_t>(part.ordinal);
  const format::SlotLayout& from = c.slot(unit.from);
  const format::SlotLayout& to = c.slot(unit.to);
  const format::LayerSlot& from_layer = from.layers[ordinal];
  const format::LayerSlot& to_layer = to.layers[ordinal];
  if (from_layer.format == to_layer.format) {
    const size_t bytes =
        to_layer.block_bytes != 0 ? to_layer.block_bytes : static_cast<size_t>(part.heads) * to_layer.plane.bytes;
    const size_t head = static_cast<size_t>(part.first_head) * to_layer.plane.bytes;
    std::memcpy(unit.dst + to_layer.offset + head, unit.src + from_layer.offset + head, bytes);
    return {};
  }
  const bool strip = !format::is_direct(c.slot(Tier::kRecent).layers[ordinal].format);
  const int exact_tokens = unit.start == 0 && strip ? c.strip.sink_tokens : 0;
  float* scratch = reinterpret_cast<float*>(thread.scratch.data());
  if (to_layer.format.is_low_rank()) {
    const double start = now_s();
    const format::BlockReport report =
        attention::convert_to_block(c.layers[ordinal], from, to, encode_, *traits, kernels_, turn_of(c, ordinal),
                                    part.ordinal, exact_tokens, unit.src, unit.dst, scratch);
    return {true, to.page_tokens, now_s() - start, report};
  }
  for (int h = part.first_head; h < part.first_head + part.heads; ++h) {
    if (from_layer.format.is_low_rank()) {
      attention::convert_from_block(c.layers[ordinal], from, to, encode_, kernels_, turn_of(c, ordinal), part.ordinal, h,
                                    exact_tokens, unit.src, unit.dst, thread.blocks, scratch);
    } else {
      attention::convert_plane(c.layers[ordinal], from, to, encode_, kernels_, part.ordinal, h, exact_tokens, unit.src,
                               unit.dst, scratch);
    }
  }
  return {};
}

void Lifecycle::count(const BlockResult& b) {
  if (!b.made) return;
  ++low_rank_.blocks;
  low_rank_.tokens += static_cast<uint64_t>(b.tokens);
  low_rank_.seconds += b.seconds;
  ++low_rank_.ranks[b.report.rank];
  low_rank_.exact_rows += static_cast<uint64_t>(b.report.rows);
  low_rank_.exact_rows_of_runs += static_cast<uint64_t>(b.report.rows_of_runs);
  low_rank_.runs_left_out += static_cast<uint64_t>(b.report.runs_left_out);
  low_rank_.rows_lost += static_cast<uint64_t>(b.report.rows_lost);
  low_rank_.retained_energy += b.report.retained_energy;
}

std::string Lifecycle::fingerprint() const {
  std::string out;
  for (const auto& tiers : fingerprints_) {
    for (const uint64_t f : tiers) out.append(reinterpret_cast<const char*>(&f), sizeof(f));
  }
  return out;
}

size_t Lifecycle::scratch_bytes() const {
  size_t bytes = 0;
  for (const ThreadState& t : threads_) bytes += t.scratch.size() + t.blocks.codec_bytes() + t.blocks.work_bytes();
  return bytes + (fidelity_ && fidelity_->kept() != nullptr ? fidelity_->kept()->buffer_bytes() : 0);
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
  stats.low_rank = low_rank_;
  if (low_rank_.rows_lost != 0) stats.fallbacks["low_rank_rows_lost"] += low_rank_.rows_lost;
  if (traits_ && traits_->missing() != 0) stats.fallbacks["low_rank_without_text"] += traits_->missing();
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
