#include "varve/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "attention/step.h"
#include "base/clock.h"
#include "base/lap.h"
#include "base/system.h"
#include "cache/prefix/index.h"
#include "engine/cache_plan.h"
#include "engine/capacity.h"
#include "engine/dense_rows.h"
#include "engine/kv_stats.h"
#include "engine/lifecycle.h"
#include "engine/page_trace.h"
#include "kernels/cpu/kernels.h"
#include "model/executor.h"

namespace varve {
namespace {

using attention::ClassAttention;
using attention::PageView;
using attention::SequenceView;

/// Sends each layer's attention nodes to its class.
class LayerRouter final : public attention::LayerAttention {
 public:
  LayerRouter(const engine::CachePlan& plan, std::vector<std::unique_ptr<ClassAttention>>& classes)
      : plan_(plan), classes_(classes) {}

  void append(int layer, const float* k, const float* v, int thread, int threads) override {
    of(layer).append(layer, k, v, thread, threads);
  }
  void route(int layer, const float* q, int thread, int threads) override {
    of(layer).route(layer, q, thread, threads);
  }
  void partial(int layer, const float* q, int thread, int threads) override {
    of(layer).partial(layer, q, thread, threads);
  }
  void merge(int layer, float* out, int thread, int threads) override { of(layer).merge(layer, out, thread, threads); }

 private:
  ClassAttention& of(int layer) {
    return *classes_[static_cast<size_t>(plan_.class_of_layer[static_cast<size_t>(layer)])];
  }
  const engine::CachePlan& plan_;
  std::vector<std::unique_ptr<ClassAttention>>& classes_;
};

std::string count(int64_t n) { return std::to_string(n); }

/// Feeds whose weight products may take the arithmetic of many rows: decided by the feed alone, so that its result does
/// not depend on what else is in the step.
bool is_wide(const Feed& f) { return f.tokens.size() >= size_t{model::WeightProduct::kLeastRows}; }

/// Brings the feeds into the executor's order: wide ones first, of these the ones whose every row gives logits. Returns
/// the new place of each.
std::vector<size_t> wide_first(std::vector<Feed>& feeds) {
  const auto rank = [](const Feed& f) { return is_wide(f) ? (f.want == Logits::kAll ? 0 : 1) : 2; };
  std::vector<size_t> place(feeds.size());
  std::vector<Feed> ordered;
  for (int r = 0; r <= 2; ++r) {
    for (size_t i = 0; i < feeds.size(); ++i) {
      if (rank(feeds[i]) != r) continue;
      place[i] = ordered.size();
      ordered.push_back(feeds[i]);
    }
  }
  feeds = std::move(ordered);
  return place;
}

size_t logit_rows(const Feed& f) {
  return f.want == Logits::kAll ? f.tokens.size() : f.want == Logits::kLast ? 1 : 0;
}

/// Brings the logits of reordered feeds (wide_first) back into the order of `feeds`.
void restore_order(std::span<const Feed> feeds, const std::vector<size_t>& place, size_t vocabulary,
                   std::vector<float>& logits) {
  if (std::is_sorted(place.begin(), place.end())) return;
  std::vector<size_t> first(place.size() + 1);  // by place: row of the feed's first logits
  for (size_t i = 0; i < feeds.size(); ++i) first[place[i] + 1] = logit_rows(feeds[i]);
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<float> ordered;
  ordered.reserve(logits.size());
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto begin = logits.begin() + ptrdiff_t(first[place[i]] * vocabulary);
    ordered.insert(ordered.end(), begin, begin + ptrdiff_t(logit_rows(feeds[i]) * vocabulary));
  }
  logits = std::move(ordered);
}

struct Session {
  std::vector<int32_t> tokens;  ///< settled
  std::string tenant;
  size_t promised_bytes = 0;  ///< admitted with (equation 14); 0: no promise
  uint64_t decode_steps = 0;
  std::vector<attention::RouteMemory> routes;  ///< by class, once it was routed; not its forks'
  bool adopted = false;                        ///< its rows are not what this engine would have computed: never for other sessions
};

}  // namespace

struct Engine::Impl {
  std::shared_ptr<model::Model> model;
  EngineOptions options;
  engine::CachePlan plan;
  const kernels::Kernels* kernels = nullptr;
  std::unique_ptr<model::Executor> executor;
  std::unique_ptr<cache::Cache> cache;
  std::vector<std::unique_ptr<ClassAttention>> attention;
  std::unique_ptr<engine::PageTrace> trace;  ///< null when nobody listens
  std::unique_ptr<engine::Lifecycle> lifecycle;
  std::unique_ptr<cache::PrefixIndex> prefixes;  ///< null without a prefix cache
  std::unordered_map<SessionId, Session> sessions;
  StepTimes* times = nullptr;
  uint64_t steps = 0;
  uint64_t scored_steps = 0;
  uint64_t tiles_requested = 0, tiles_read = 0;
  RouterStats router;
  std::map<std::string, uint64_t> fallbacks;

  Status check_feeds(std::span<const Feed> feeds) const;
  Status admit(int expected_tokens, size_t* bytes) const;
  /// Makes room for `bytes`: first what only the prefix cache holds, then demotions.
  void relieve(size_t bytes);
  Status reserve(std::span<const Feed> feeds);
  /// The slices of recomputed pages that ride along, as feeds of hidden sequences.
  std::vector<engine::Recompute::Slice> recompute_slices(std::span<const Feed> feeds);
  bool is_scored(const Feed& feed) const;
  Status plan_attention(std::span<const Feed> rows, bool scored);
  /// How many of the feed's last rows attend to all pages.
  int full_rows(const Feed& feed) const;
  void count_reads();
  Status step(std::span<const Feed> feeds, std::vector<float>& logits);
  Status run(std::span<const Feed> rows, std::vector<float>& logits, Lap<StepTimes>& lap);
  /// After the step: scores of the pages of feed i, measured before it settles.
  Status observe(const Feed& feed, size_t i);
  Status settle(const Feed& feed);
  /// A step without the model: the feed's rows come from `rows`.
  Status take(const Feed& feed, const engine::DenseRows& rows);
  void traced(SessionId session, const char* why, const char* how, const char* gone) {
    if (trace) trace->update(int64_t(steps), session, why, how, gone);
  }
};

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<model::Model> model, const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  Impl& e = *engine->impl_;
  e.model = std::move(model);
  e.options = options;
  const model::ModelInfo& info = e.model->info();
  if (options.threads < 0 || options.threads > 512) {
    return invalid_argument("threads is " + count(options.threads) + "; it must be 1 to 512, or 0 for all processors");
  }
  if (options.chunk_tokens < 1 || options.chunk_tokens > 8192) {
    return invalid_argument("chunk of " + count(options.chunk_tokens) + " tokens; it must be 1 to 8192");
  }
  if (options.context_tokens < 0 || options.context_tokens > info.context_train) {
    return invalid_argument("context of " + count(options.context_tokens) + " tokens; the model was trained on " +
                            count(info.context_train));
  }
  if (e.options.threads == 0) e.options.threads = processor_count();
  if (e.options.context_tokens == 0) e.options.context_tokens = info.context_train;
  if (e.options.kv_budget_bytes == 0) e.options.kv_budget_bytes = available_memory_bytes() / 4 * 3;

  auto plan = engine::plan_cache(info, options.profile);
  if (!plan.ok()) return plan.status();
  e.plan = std::move(*plan);
  const auto kernels = kernels::choose(options.kernel);
  if (!kernels.ok()) return kernels.status();
  e.kernels = *kernels;
  const auto weight_gemm = model::parse_weight_gemm(options.weight_gemm);
  if (!weight_gemm.ok()) return weight_gemm.status();

  if (Status s = engine::check_budget(e.plan, options.profile, e.options.kv_budget_bytes, e.options.context_tokens);
      !s.ok()) {
    return s;
  }

  cache::Config config;
  config.budget_bytes = e.options.kv_budget_bytes;
  config.poison = options.poison_freed;
  config.slab_bytes = 1;  // one slot a slab: a page that goes gives its memory back at once
  for (const engine::ClassPlan& c : e.plan.classes) {
    cache::ClassConfig& cc = config.classes.emplace_back();
    cc.page_tokens = options.profile.page_tokens;
    cc.window = c.window;
    for (size_t t = 0; t < cache::kTiers; ++t) cc.slot_bytes[t] = c.slots[t].bytes;
    cc.strip_bytes = c.strip.bytes;
    cc.sink_bytes = c.strip.sink_bytes;
    cc.tile_tokens = c.strip.bytes != 0 ? format::kTileTokens : 0;
  }
  auto cache = cache::Cache::create(config);
  if (!cache.ok())
    return Status(cache.status().code(), "profile " + options.profile.name + ": " + cache.status().message());
  e.cache = std::move(*cache);

  auto executor = model::Executor::create(e.model, {.threads = e.options.threads,
                                                    .max_rows = e.options.chunk_tokens,
                                                    .weight_gemm = *weight_gemm,
                                                    .kernels = e.kernels});
  if (!executor.ok()) return executor.status();
  e.executor = std::move(*executor);
  for (const engine::ClassPlan& c : e.plan.classes) {
    attention::ClassGeometry geometry{.layers = c.layers,
                                      .recent = &c.slot(cache::Tier::kRecent),
                                      .strip = &c.strip,
                                      .encode = {.inner_product_norm = options.profile.inner_product_norm},
                                      .route = {.pages = options.profile.router.pages,
                                                .from_tokens = options.profile.router.from_tokens,
                                                .window_tokens = options.profile.router.window_tokens,
                                                .reroute_steps = options.profile.router.reroute_steps,
                                                .prefill = options.profile.router.prefill}};
    e.attention.push_back(std::make_unique<ClassAttention>(std::move(geometry), *e.kernels, e.options.threads));
  }
  if (e.options.refinement_bytes == 0) e.options.refinement_bytes = e.options.kv_budget_bytes;
  if (options.on_transition) e.trace = std::make_unique<engine::PageTrace>(*e.cache, options.on_transition);
  const auto tokens_of = [&e](cache::SequenceId id) {
    const auto it = e.sessions.find(id);
    return it == e.sessions.end() ? std::span<const int32_t>() : std::span<const int32_t>(it->second.tokens);
  };
  auto lifecycle = engine::Lifecycle::create(
      {*e.cache, e.plan, *e.kernels, *e.executor, *e.model, tokens_of, e.trace.get()}, e.options);
  if (!lifecycle.ok()) return lifecycle.status();
  e.lifecycle = std::move(*lifecycle);
  if (options.prefix_cache_bytes != 0) {
    auto prefixes = cache::PrefixIndex::create(e.cache.get(), {.quota_bytes = options.prefix_cache_bytes,
                                                               .model_digest = info.digest,
                                                               .codec_fingerprint = e.lifecycle->fingerprint()});
    if (!prefixes.ok()) return prefixes.status();
    e.prefixes = std::move(*prefixes);
  }
  return engine;
}

Result<SessionId> Engine::start() {
  if (const size_t lacking = impl_->cache->shortfall(); lacking != 0) impl_->relieve(lacking);
  const auto id = impl_->cache->start();
  if (!id.ok()) return id.status();
  impl_->sessions[*id];
  return *id;
}

Status Engine::Impl::admit(int expected_tokens, size_t* bytes) const {
  *bytes = 0;
  if (expected_tokens == 0) return {};
  if (expected_tokens < 0 || expected_tokens > options.context_tokens) {
    return context_overflow("a session of " + count(expected_tokens) + " tokens; the context holds " +
                            count(options.context_tokens));
  }
  const engine::CapacityInput terms =
      engine::capacity_terms(plan, options.profile, options.kv_budget_bytes, 0, expected_tokens);
  const uint64_t needed = terms.fixed_bytes + terms.kv_bytes;
  uint64_t promised = 0;
  size_t holders = 0;
  for (const auto& [id, session] : sessions) {
    promised += session.promised_bytes;
    holders += session.promised_bytes != 0;
  }
  if (terms.resident_bytes + promised + needed > options.kv_budget_bytes) {
    return resource_exhausted("a session of " + count(expected_tokens) + " tokens takes " + count(int64_t(needed)) +
                              " bytes; of the KV budget of " + count(int64_t(options.kv_budget_bytes)) + " bytes " +
                              count(int64_t(promised)) + " are promised to " + count(int64_t(holders)) +
                              " open sessions and " + count(int64_t(terms.resident_bytes)) + " kept for conversions");
  }
  *bytes = needed;
  return {};
}

Result<Opened> Engine::open(std::span<const int32_t> prompt, const OpenOptions& options) {
  Impl& e = *impl_;
  if (int64_t(prompt.size()) > e.options.context_tokens) {
    return context_overflow("a prompt of " + count(int64_t(prompt.size())) + " tokens; the context holds " +
                            count(e.options.context_tokens));
  }
  size_t promised = 0;
  if (Status s = e.admit(options.expected_tokens, &promised); !s.ok()) return s;
  if (const size_t lacking = e.cache->shortfall(); lacking != 0) e.relieve(lacking);
  Opened out;
  if (e.prefixes) {
    auto hit = e.prefixes->start(prompt, options.tenant);
    if (!hit.ok()) return hit.status();
    out = {hit->sequence, hit->tokens, hit->lost_tokens};
  } else {
    const auto id = e.cache->start();
    if (!id.ok()) return id.status();
    out.session = *id;
  }
  Session& session = e.sessions[out.session];
  session.tokens.assign(prompt.begin(), prompt.begin() + out.cached_tokens);
  session.tenant = options.tenant;
  session.promised_bytes = promised;
  e.traced(out.session, "hit", "reference", "");
  return out;
}

Status Engine::mark(SessionId session, int begin, int end) {
  if (!impl_->sessions.contains(session)) return invalid_argument("no session " + count(int64_t(session)));
  if (begin < 0 || end < begin || end > impl_->options.context_tokens) {
    return invalid_argument("positions " + count(begin) + " to " + count(end) +
                            " cannot be marked; the context holds " + count(impl_->options.context_tokens));
  }
  return end > begin ? impl_->lifecycle->mark(session, begin, end) : Status();
}

Result<SessionId> Engine::fork(SessionId session) {
  const auto it = impl_->sessions.find(session);
  if (it == impl_->sessions.end()) return invalid_argument("no session " + count(int64_t(session)));
  impl_->lifecycle->flush(int64_t(impl_->steps), session);
  if (const size_t lacking = impl_->cache->fork_shortfall(session); lacking != 0) impl_->relieve(lacking);
  const auto id = impl_->cache->fork(session);
  if (!id.ok()) return id.status();
  Session copy = it->second;
  copy.promised_bytes = 0;
  copy.routes.clear();
  impl_->sessions[*id] = std::move(copy);
  impl_->lifecycle->forked(session, *id);
  impl_->traced(*id, "fork", "reference", "");
  return *id;
}

Status Engine::Impl::take(const Feed& feed, const engine::DenseRows& rows) {
  if (Status s = check_feeds({&feed, 1}); !s.ok()) return s;
  if (Status s = reserve({&feed, 1}); !s.ok()) return s;
  {
    const cache::ReadGuard guard = cache->read({&feed.session, 1});
    if (Status s = plan_attention({&feed, 1}, /*scored=*/false); !s.ok()) return s;
    const int begin = cache->length(feed.session), end = begin + static_cast<int>(feed.tokens.size());
    std::vector<float> k, v;
    for (size_t c = 0; c < plan.classes.size(); ++c) {
      for (const format::LayerGeometry& layer : plan.classes[c].layers) {
        rows.read(layer.layer, begin, end, k, v);
        executor->parallel(
            [&](int thread, int threads) { attention[c]->append(layer.layer, k.data(), v.data(), thread, threads); });
        executor->parallel([&](int thread, int threads) { attention[c]->seal(layer.layer, thread, threads); });
      }
    }
  }
  ++steps;
  if (Status s = settle(feed); !s.ok()) return s;
  lifecycle->advance(int64_t(steps));
  return {};
}

Result<SessionId> Engine::adopt(const Engine& dense, SessionId source) {
  Impl& e = *impl_;
  const Impl& from = *dense.impl_;
  if (&e == &from) return invalid_argument("an engine cannot adopt a session of its own: fork it");
  const std::string& digest = e.model->info().digest;
  if (from.model->info().digest != digest) {
    return invalid_argument("cannot adopt a session of model " + from.model->info().digest + " into an engine of " +
                            digest);
  }
  if (!from.options.profile.is_dense()) {
    return invalid_argument("cannot adopt a session of profile " + from.options.profile.name + ": it is not dense");
  }
  const auto it = from.sessions.find(source);
  if (it == from.sessions.end()) return invalid_argument("no session " + count(int64_t(source)) + " to adopt");
  const std::span<const int32_t> tokens = it->second.tokens;
  if (tokens.size() > size_t(e.options.context_tokens)) {
    return context_overflow("a session of " + count(int64_t(tokens.size())) + " tokens to adopt; the context holds " +
                            count(e.options.context_tokens));
  }
  const auto id = start();
  if (!id.ok()) return id.status();
  e.sessions[*id].adopted = true;
  const engine::DenseRows rows(from.plan, *from.cache, source, *e.kernels);
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min(tokens.size() - done, size_t(e.options.chunk_tokens));
    const Feed feed{*id, tokens.subspan(done, n), Logits::kNone};
    if (Status s = e.take(feed, rows); !s.ok()) {
      finish(*id);
      return s;
    }
    done += n;
  }
  return *id;
}

Status Engine::read_rows(SessionId session, int layer, int begin, int end, std::vector<float>& k,
                         std::vector<float>& v) const {
  const Impl& e = *impl_;
  if (!e.options.profile.is_dense()) {
    return invalid_argument("rows of profile " + e.options.profile.name + " cannot be read: it is not dense");
  }
  const auto it = e.sessions.find(session);
  if (it == e.sessions.end()) return invalid_argument("no session " + count(int64_t(session)));
  if (layer < 0 || layer >= e.model->info().layers || e.plan.class_of_layer[size_t(layer)] < 0) {
    return invalid_argument("layer " + count(layer) + " owns no keys and values");
  }
  if (begin < 0 || end < begin || size_t(end) > it->second.tokens.size()) {
    return invalid_argument("positions " + count(begin) + " to " + count(end) + " of a session of " +
                            count(int64_t(it->second.tokens.size())) + " tokens");
  }
  engine::DenseRows(e.plan, *e.cache, session, *e.kernels).read(layer, begin, end, k, v);
  return {};
}

void Engine::finish(SessionId session) {
  Impl& e = *impl_;
  if (e.sessions.erase(session) == 0) return;
  e.cache->finish(session);
  e.lifecycle->finished();
  if (e.prefixes) e.prefixes->trim();
  e.traced(session, "", "", "finished");
}

Result<int> Engine::truncate(SessionId session, int tokens) {
  const auto it = impl_->sessions.find(session);
  if (it == impl_->sessions.end()) return invalid_argument("no session " + count(int64_t(session)));
  std::vector<int32_t>& held = it->second.tokens;
  const int have = static_cast<int>(held.size());
  if (tokens < 0) return invalid_argument("cannot keep " + count(tokens) + " tokens");
  if (tokens >= have) return have;
  // The cache knows what can be cut exactly: rows of the open tile, and whole pages.
  const int page = impl_->options.profile.page_tokens;
  int keep = tokens;
  Status s = impl_->cache->truncate(session, keep);
  if (s.code() == StatusCode::kUnsupported) s = impl_->cache->truncate(session, keep = tokens / page * page);
  if (s.code() == StatusCode::kUnsupported) s = impl_->cache->truncate(session, keep = 0);
  if (!s.ok()) return s;
  held.resize(static_cast<size_t>(keep));
  it->second.routes.clear();
  impl_->lifecycle->settled(session, 0);
  if (impl_->prefixes) impl_->prefixes->trim();
  impl_->traced(session, "", "", "truncated");
  return keep;
}

int Engine::revocable_tokens(SessionId session, int keep) const {
  const auto it = impl_->sessions.find(session);
  if (it == impl_->sessions.end()) return 0;
  const int left = impl_->options.context_tokens - static_cast<int>(it->second.tokens.size());
  return std::min({impl_->cache->revocable(session, keep), left, impl_->options.chunk_tokens});
}

Status Engine::Impl::check_feeds(std::span<const Feed> feeds) const {
  int64_t rows = 0;
  if (feeds.empty()) return invalid_argument("a step needs at least one feed");
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& f = feeds[i];
    const auto it = sessions.find(f.session);
    if (it == sessions.end()) return invalid_argument("no session " + count(int64_t(f.session)));
    for (size_t j = 0; j < i; ++j) {
      if (feeds[j].session == f.session) {
        return invalid_argument("session " + count(int64_t(f.session)) + " is fed twice in one step");
      }
    }
    if (f.tokens.empty()) return invalid_argument("session " + count(int64_t(f.session)) + " is fed no tokens");
    const int64_t held = int64_t(it->second.tokens.size()), length = held + int64_t(f.tokens.size());
    if (length > options.context_tokens) {
      return context_overflow("session of " + count(held) + " tokens plus " + count(int64_t(f.tokens.size())) +
                              " new ones is " + count(length) + "; the context holds " + count(options.context_tokens));
    }
    for (const int32_t token : f.tokens) {
      if (token < 0 || token >= model->info().vocabulary) {
        return invalid_argument("token " + count(token) + " is not in the vocabulary of " +
                                count(model->info().vocabulary));
      }
    }
    rows += int64_t(f.tokens.size());
  }
  if (rows > options.chunk_tokens) {
    return invalid_argument("a step of " + count(rows) + " rows; at most " + count(options.chunk_tokens) + " fit");
  }
  return {};
}

void Engine::Impl::relieve(size_t bytes) {
  if (prefixes) {
    const size_t evicted = prefixes->evict(bytes);
    if (evicted >= bytes) return;
    bytes -= evicted;
  }
  lifecycle->relieve(int64_t(steps), bytes);
}

Status Engine::Impl::reserve(std::span<const Feed> feeds) {
  for (const Feed& f : feeds) {
    const int tokens = static_cast<int>(f.tokens.size());
    if (const size_t lacking = cache->shortfall(f.session, tokens); lacking != 0) relieve(lacking);
    if (Status s = cache->reserve(f.session, tokens); !s.ok()) return s;
  }
  return {};
}

std::vector<engine::Recompute::Slice> Engine::Impl::recompute_slices(std::span<const Feed> feeds) {
  std::vector<engine::Recompute::Slice> out;
  engine::Recompute* recompute = lifecycle->recompute();
  if (recompute == nullptr) return out;
  int left = options.chunk_tokens;
  for (const Feed& f : feeds) left -= static_cast<int>(f.tokens.size());
  for (const Feed& f : feeds) {
    const auto slice = recompute->next(f.session, left);
    if (!slice) continue;
    // Nobody else makes room for it: what does not fit is given up.
    if (!cache->reserve(slice->reader, slice->end - slice->begin).ok()) {
      recompute->fail(*slice);
      continue;
    }
    left -= slice->end - slice->begin;
    out.push_back(*slice);
  }
  return out;
}

bool Engine::Impl::is_scored(const Feed& feed) const {
  const Scoring& s = options.profile.scoring;
  return s.on && (feed.tokens.size() > 1 || sessions.at(feed.session).decode_steps % uint64_t(s.every_steps) == 0);
}

int Engine::Impl::full_rows(const Feed& feed) const {
  const int rows = static_cast<int>(feed.tokens.size());
  if (!sessions.contains(feed.session)) return rows;  // a page's tokens read again: exactly
  if (feed.full_rows >= 0) return std::min(feed.full_rows, rows);
  const bool question = rows > attention::kDecodeRows && feed.want != Logits::kNone;
  return question ? std::min(options.profile.router.question_tokens, rows) : 0;
}

void Engine::Impl::count_reads() {
  uint64_t tokens = 0, attended = 0;
  for (const auto& a : attention) {
    const attention::ReadPlan reads = a->stats();
    tiles_requested += reads.tiles_requested;
    tiles_read += reads.tiles_read;
    const attention::RouteStats routes = a->route_stats();
    router.selections += routes.selections;
    router.reused += routes.reused;
    router.pages_scored += routes.pages_scored;
    router.pages_skipped += routes.pages_skipped;
    router.decode_tokens += routes.decode_tokens;
    router.decode_attended += routes.decode_attended;
    router.prefill_tokens += routes.prefill_tokens;
    router.prefill_attended += routes.prefill_attended;
    tokens += routes.decode_tokens + routes.prefill_tokens;
    attended += routes.decode_attended + routes.prefill_attended;
  }
  router.last_step_share = RouterStats::share(attended, tokens);
}

Status Engine::Impl::plan_attention(std::span<const Feed> rows, bool scored) {
  const attention::MassRequest mass{.rows = scored ? options.profile.scoring.rows : 0,
                                    .layer_stride = options.profile.scoring.layer_stride};
  std::vector<SequenceView> views;
  for (size_t c = 0; c < plan.classes.size(); ++c) {
    views.clear();
    int row = 0;
    for (const Feed& f : rows) {
      SequenceView& view = views.emplace_back();
      view.row_begin = row;
      view.rows = static_cast<int>(f.tokens.size());
      view.past = cache->length(f.session);
      view.strip = cache->strip(f.session, c);
      if (options.profile.router.pages > 0) {
        view.full_rows = full_rows(f);
        if (const auto it = sessions.find(f.session); it != sessions.end()) {
          it->second.routes.resize(plan.classes.size());
          view.route = &it->second.routes[c];
        }
      }
      for (const cache::BlockEntry& b : cache->blocks(f.session, c)) {
        view.pages.push_back({cache->slot(c, b.ref), &plan.classes[c].slot(b.ref.tier), b.start});
      }
      row += view.rows;
    }
    if (Status s = attention[c]->plan(views, mass); !s.ok()) return s;
  }
  return {};
}

Status Engine::Impl::run(std::span<const Feed> rows, std::vector<float>& logits, Lap<StepTimes>& lap) {
  std::vector<int32_t> tokens, positions, output_rows;
  int wide_rows = 0, wide_outputs = 0;
  for (const Feed& f : rows) {
    if (is_wide(f)) {
      wide_rows += static_cast<int>(f.tokens.size());
      if (f.want == Logits::kAll) wide_outputs = wide_rows;
    }
    const int past = cache->length(f.session);
    for (size_t i = 0; i < f.tokens.size(); ++i) {
      if (f.want == Logits::kAll || (f.want == Logits::kLast && i + 1 == f.tokens.size())) {
        output_rows.push_back(static_cast<int32_t>(tokens.size()));
      }
      tokens.push_back(f.tokens[i]);
      positions.push_back(past + static_cast<int32_t>(i));
    }
  }
  logits.resize(output_rows.size() * static_cast<size_t>(model->info().vocabulary));
  LayerRouter router(plan, attention);
  lap(&StepTimes::plan_s);
  const Status status = executor->run({tokens, positions, output_rows, wide_rows, wide_outputs}, router, logits);
  lap.skip();
  return status;
}

Status Engine::Impl::observe(const Feed& feed, size_t i) {
  for (size_t c = 0; c < attention.size(); ++c) {
    if (Status s = lifecycle->observe(feed.session, c, attention[c]->page_mass(i)); !s.ok()) return s;
  }
  ++scored_steps;
  return {};
}

Status Engine::Impl::settle(const Feed& feed) {
  const int added = static_cast<int>(feed.tokens.size());
  if (Status s = cache->settle(feed.session, added); !s.ok()) return s;
  Session& session = sessions[feed.session];
  session.tokens.insert(session.tokens.end(), feed.tokens.begin(), feed.tokens.end());
  if (added == 1) ++session.decode_steps;
  lifecycle->write_headers(feed.session, session.tokens, added);
  if (prefixes && !session.adopted) {
    if (Status s = prefixes->seal(feed.session, session.tokens, session.tenant); !s.ok()) return s;
  }
  lifecycle->settled(feed.session, added);
  traced(feed.session, "sealed", "append", "window");
  return {};
}

Status Engine::step(std::span<const Feed> feeds, std::vector<float>& logits) {
  if (impl_->times == nullptr) return impl_->step(feeds, logits);
  const double start = now_s();
  const Status status = impl_->step(feeds, logits);
  impl_->times->wall_s += now_s() - start;
  ++impl_->times->steps;
  return status;
}

Status Engine::Impl::step(std::span<const Feed> feeds, std::vector<float>& logits) {
  Lap lap(times);
  if (Status s = check_feeds(feeds); !s.ok()) return s;
  if (Status s = reserve(feeds); !s.ok()) return s;
  lap(&StepTimes::reserve_s);
  const std::vector<engine::Recompute::Slice> slices = recompute_slices(feeds);
  std::vector<Feed> rows(feeds.begin(), feeds.end());
  for (const engine::Recompute::Slice& slice : slices) {
    const std::span<const int32_t> tokens = sessions.at(slice.session).tokens;
    rows.push_back({slice.reader, tokens.subspan(size_t(slice.begin), size_t(slice.end - slice.begin)), Logits::kNone});
  }
  const std::vector<size_t> place = wide_first(rows);
  const bool scored = std::any_of(feeds.begin(), feeds.end(), [&](const Feed& f) { return is_scored(f); });
  {
    std::vector<cache::SequenceId> ids;
    for (const Feed& f : rows) ids.push_back(f.session);
    const cache::ReadGuard guard = cache->read(ids);
    if (Status s = plan_attention(rows, scored); !s.ok()) return s;
    if (Status s = run(rows, logits, lap); !s.ok()) return s;
  }
  count_reads();
  restore_order(feeds, place, size_t(model->info().vocabulary), logits);
  ++steps;
  // Hidden sequences first: settling a session may end the recomputation that it asked for.
  for (const engine::Recompute::Slice& slice : slices) {
    const std::vector<int32_t>& tokens = sessions.at(slice.session).tokens;
    if (Status s = cache->settle(slice.reader, slice.end - slice.begin); !s.ok()) return s;
    lifecycle->write_headers(slice.reader, std::span(tokens).first(size_t(slice.end)), slice.end - slice.begin);
    lifecycle->recompute()->fed(slice);
  }
  lap(&StepTimes::settle_s);
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (is_scored(feeds[i])) {
      if (Status s = observe(feeds[i], place[i]); !s.ok()) return s;
      lap(&StepTimes::scores_s);
    }
    if (Status s = settle(feeds[i]); !s.ok()) return s;
    lap(&StepTimes::settle_s);
  }
  lifecycle->advance(int64_t(steps));
  lap(&StepTimes::convert_s);
  if (prefixes) prefixes->trim();
  lap(&StepTimes::settle_s);
  return {};
}

Status Engine::feed(SessionId session, std::span<const int32_t> tokens, Logits want, std::vector<float>& logits,
                    const std::function<bool(int, int)>& progress) {
  const int total = static_cast<int>(tokens.size());
  const auto it = impl_->sessions.find(session);
  if (it == impl_->sessions.end()) return invalid_argument("no session " + count(int64_t(session)));
  const size_t held = it->second.tokens.size();
  if (const size_t length = held + tokens.size(); length > size_t(impl_->options.context_tokens)) {
    return context_overflow("session of " + count(int64_t(held)) + " tokens plus " + count(total) + " new ones is " +
                            count(int64_t(length)) + "; the context holds " + count(impl_->options.context_tokens));
  }
  std::vector<float> chunk_logits;
  logits.clear();
  for (int done = 0; done < total;) {
    const int n = std::min(total - done, impl_->options.chunk_tokens);
    const bool last = done + n == total;
    const Logits chunk_want = want == Logits::kAll ? Logits::kAll : last ? want : Logits::kNone;
    Feed f{session, tokens.subspan(size_t(done), size_t(n)), chunk_want};
    if (total > attention::kDecodeRows) {  // a prompt: all of it attends to all pages, or its last tokens, the question
      const Routing& router = impl_->options.profile.router;
      const int routed = router.prefill ? std::max(0, total - router.question_tokens) : 0;
      f.full_rows = std::clamp(done + n - routed, 0, n);
    }
    if (Status s = step({&f, 1}, chunk_logits); !s.ok()) return s;
    logits.insert(logits.end(), chunk_logits.begin(), chunk_logits.end());
    done += n;
    if (progress && !progress(done, total)) {
      return Status(StatusCode::kCancelled, "stopped after " + count(done) + " of " + count(total) + " tokens");
    }
  }
  return {};
}

void Engine::time_steps(StepTimes* times) {
  impl_->times = times;
  impl_->executor->time_steps(times);
}

std::span<const int32_t> Engine::tokens(SessionId session) const {
  const auto it = impl_->sessions.find(session);
  return it == impl_->sessions.end() ? std::span<const int32_t>{} : std::span<const int32_t>(it->second.tokens);
}

int Engine::context_tokens() const { return impl_->options.context_tokens; }
int Engine::chunk_tokens() const { return impl_->options.chunk_tokens; }
int Engine::vocabulary() const { return impl_->model->info().vocabulary; }
const Profile& Engine::profile() const { return impl_->options.profile; }
const std::shared_ptr<model::Model>& Engine::model() const { return impl_->model; }
Status Engine::check() const { return impl_->cache->check(); }

EngineStats Engine::stats() const {
  const Impl& e = *impl_;
  EngineStats out;
  out.steps = e.steps;
  out.kernel = e.kernels->name;
  out.own_weight_products = e.executor->own_products();
  out.compute_bytes = e.executor->compute_bytes();
  out.fallbacks = e.fallbacks;
  out.scored_steps = e.scored_steps;
  out.tiles_requested = e.tiles_requested;
  out.tiles_read = e.tiles_read;
  out.router = e.router;
  e.lifecycle->report(out);
  size_t scratch = e.lifecycle->scratch_bytes();
  for (const auto& a : e.attention) scratch += a->scratch_bytes();
  std::vector<cache::SequenceId> ids;
  for (const auto& [id, session] : e.sessions) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  out.kv = engine::count_kv(*e.cache, e.plan, ids, scratch);
  if (e.prefixes) {
    const cache::PrefixStats p = e.prefixes->stats();
    out.prefix = {
        .hits = p.hits,
        .misses = p.misses,
        .hit_tokens = p.hit_tokens,
        .shortened = p.shortened,
        .lost_tokens = p.lost_tokens,
        .collisions = p.collisions,
        .evicted = p.evicted_entries[cache::PrefixStats::kQuota] + p.evicted_entries[cache::PrefixStats::kPressure],
        .entries = p.entries,
        .bytes = p.cached_bytes + p.sinks_bytes};
  }
  return out;
}

}  // namespace varve
