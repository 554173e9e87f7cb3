#include "eval/lifecycle.h"

#include <algorithm>

#include "base/clock.h"
#include "base/median.h"

namespace varve::eval {
namespace {

using Text = std::span<const int32_t>;

/// Seconds of one decode step.
Result<double> timed_step(Engine& engine, SessionId session, int32_t token, std::vector<float>& logits) {
  const double start = now_s();
  const Feed feed{session, {&token, 1}, Logits::kLast};
  if (Status s = engine.step({&feed, 1}, logits); !s.ok()) return s;
  return now_s() - start;
}

class Bench {
 public:
  Bench(const std::shared_ptr<model::Model>& model, Text text, const LifecycleOptions& options)
      : model_(model), text_(text), options_(options) {}

  Result<LifecycleReport> run() {
    report_.tokens = options_.depth_tokens;
    report_.shift_page_start = options_.shift_page * options_.profile.page_tokens;
    for (const auto part : {&Bench::measure_conversion, &Bench::measure_scoring, &Bench::measure_prefix_time,
                            &Bench::measure_paths, &Bench::measure_shift}) {
      if (Status s = (this->*part)(); !s.ok()) return s;
    }
    return report_;
  }

 private:
  Result<std::unique_ptr<Engine>> make(const Profile& profile, size_t prefix_cache_bytes = 0,
                                       std::function<void(const Transition&)> on_transition = {}) const {
    EngineOptions o;
    o.profile = profile;
    o.threads = options_.threads;
    o.kernel = options_.kernel;
    o.weight_gemm = options_.weight_gemm;
    o.prefix_cache_bytes = prefix_cache_bytes;
    o.refinement_dir = options_.refinement_dir;
    o.on_transition = std::move(on_transition);
    return Engine::create(model_, o);
  }
  Profile scoring(bool on) const {
    Profile p = options_.profile;
    p.scoring.on = on;
    return p;
  }
  Status progress(const char* what, int done, int total) const {
    if (options_.progress && !options_.progress(what, done, total)) return {StatusCode::kCancelled, "stopped"};
    return {};
  }
  Text part(int begin, int n) const { return text_.subspan(size_t(begin), size_t(n)); }

  /// Reads the document, then decodes: bytes over time, conversion throughput, inter-token times.
  Status measure_conversion() {
    ConversionCost& out = report_.conversion;
    const auto engine = make(scoring(false));
    if (!engine.ok()) return engine.status();
    const auto session = (*engine)->start();
    if (!session.ok()) return session.status();
    std::vector<float> logits;
    for (int done = 0; done < options_.depth_tokens;) {
      const int n = std::min(1024, options_.depth_tokens - done);
      if (Status s = (*engine)->feed(*session, part(done, n), Logits::kLast, logits); !s.ok()) return s;
      done += n;
      const KvStats kv = (*engine)->stats().kv;
      ConversionCost::Point& p = out.over_time.emplace_back();
      p.tokens = done;
      p.physical_bytes = kv.physical_bytes;
      p.dense_bytes = kv.dense_bytes;
      for (const TierStats& t : kv.tiers) {
        if (t.tier == "recent") p.recent_pages += t.pages;
        if (t.tier == "anchor") p.anchor_pages += t.pages;
        if (t.tier == "stale1" || t.tier == "stale2") p.stale_pages += t.pages;
      }
      if (Status s = progress("reading", done, options_.depth_tokens); !s.ok()) return s;
    }
    const EngineStats read = (*engine)->stats();
    out.tokens_per_s = read.conversion_s > 0 ? double(read.converted_tokens) / read.conversion_s : 0;
    std::vector<double> steps;
    double conversion_s = read.conversion_s;
    for (int i = 0; i < options_.decode_tokens; ++i) {
      const auto seconds = timed_step(**engine, *session, text_[size_t(options_.depth_tokens + i)], logits);
      if (!seconds.ok()) return seconds.status();
      steps.push_back(*seconds * 1e3);
      const double total = (*engine)->stats().conversion_s;
      out.worst_conversion_ms = std::max(out.worst_conversion_ms, (total - conversion_s) * 1e3);
      conversion_s = total;
      if (Status s = progress("decoding", i + 1, options_.decode_tokens); !s.ok()) return s;
    }
    out.worst_step_ms = *std::max_element(steps.begin(), steps.end());
    out.decode_step_ms = median(steps);
    out.scratch_bytes = (*engine)->stats().kv.scratch_bytes;
    return {};
  }

  /// Two engines that differ in the measurement alone: the scored one may promote nothing.
  Status measure_scoring() {
    Profile scored = scoring(true);
    scored.scoring.anchor_tokens = 0;
    scored.scoring.every_steps = 1;
    const Profile profiles[] = {scoring(false), scored};
    std::unique_ptr<Engine> engines[2];
    SessionId sessions[2] = {};
    std::vector<float> logits;
    for (int a = 0; a < 2; ++a) {
      auto engine = make(profiles[a]);
      if (!engine.ok()) return engine.status();
      engines[a] = std::move(*engine);
      const auto session = engines[a]->start();
      if (!session.ok()) return session.status();
      sessions[a] = *session;
      if (Status s = engines[a]->feed(*session, part(0, options_.depth_tokens), Logits::kLast, logits); !s.ok())
        return s;
      if (Status s = progress("reading for the scoring cost", a + 1, 2); !s.ok()) return s;
    }
    constexpr int kSteps = 24;
    std::vector<double> ms[2];
    for (int round = -1; round < options_.rounds; ++round) {
      for (int a = 0; a < 2; ++a) {
        const auto fork = engines[a]->fork(sessions[a]);
        if (!fork.ok()) return fork.status();
        for (int i = 0; i < kSteps; ++i) {
          const auto seconds = timed_step(*engines[a], *fork, text_[size_t(options_.depth_tokens + i)], logits);
          if (!seconds.ok()) return seconds.status();
          if (round >= 0) ms[a].push_back(*seconds * 1e3);
        }
        engines[a]->finish(*fork);
      }
      if (Status s = progress("decoding with and without scores", round + 1, options_.rounds); !s.ok()) return s;
    }
    report_.scoring = {median(ms[0]), median(ms[1])};
    return {};
  }

  /// A prefix read by an earlier session against the same prompt for a tenant that nobody served yet.
  Status measure_prefix_time() {
    const auto engine = make(scoring(false), size_t{1} << 40);
    if (!engine.ok()) return engine.status();
    const Text prompt = part(0, options_.prefix_tokens + options_.question_tokens);
    std::vector<double> cold, hit;
    for (int round = 0; round < options_.rounds; ++round) {
      const std::string tenant = std::to_string(round);
      for (std::vector<double>* times : {&cold, &hit}) {
        std::vector<float> logits;
        const double start = now_s();
        const auto opened = (*engine)->open(prompt, {.tenant = tenant});
        if (!opened.ok()) return opened.status();
        const Text rest = prompt.subspan(size_t(opened->cached_tokens));
        if (Status s = (*engine)->feed(opened->session, rest, Logits::kLast, logits); !s.ok()) return s;
        times->push_back(now_s() - start);
        if (times == &hit) report_.prefix.cached_tokens = opened->cached_tokens;
        (*engine)->finish(opened->session);
      }
      if (Status s = progress("prefix hits", round + 1, options_.rounds); !s.ok()) return s;
    }
    report_.prefix.cold_s = median(cold);
    report_.prefix.hit_s = median(hit);
    return {};
  }

  using Rows = std::vector<float>;
  DivergenceSummary compare(const Rows& reference, const Rows& rows, Text tokens) const {
    const size_t vocabulary = reference.size() / tokens.size();
    std::vector<TokenDivergence> all;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int next = i + 1 < tokens.size() ? tokens[i + 1] : -1;
      all.push_back(compare_logits({reference.data() + i * vocabulary, vocabulary},
                                   {rows.data() + i * vocabulary, vocabulary}, next));
    }
    return summarize(all);
  }

  /// Logits of the question's tokens by several ways to the same prefix.
  Status measure_paths() {
    const Text prefix = part(0, options_.prefix_tokens),
               question = part(options_.prefix_tokens, options_.question_tokens);
    const auto ask = [&](Engine& engine, SessionId session) -> Result<Rows> {
      Rows rows;
      if (Status s = engine.feed(session, question, Logits::kAll, rows); !s.ok()) return s;
      return rows;
    };
    const auto read = [&](Engine& engine) -> Result<SessionId> {
      const auto session = engine.start();
      if (!session.ok()) return session.status();
      Rows unused;
      if (Status s = engine.feed(*session, prefix, Logits::kNone, unused); !s.ok()) return s;
      return *session;
    };

    const auto dense_profile = Profile::named("dense");
    if (!dense_profile.ok()) return dense_profile.status();
    const auto dense_engine = make(*dense_profile);
    if (!dense_engine.ok()) return dense_engine.status();
    const auto dense_session = read(**dense_engine);
    if (!dense_session.ok()) return dense_session.status();
    const auto dense = ask(**dense_engine, *dense_session);
    if (!dense.ok()) return dense.status();

    const auto engine = make(scoring(false), size_t{1} << 40);
    if (!engine.ok()) return engine.status();
    const auto parent = read(**engine);
    if (!parent.ok()) return parent.status();
    const auto fork = (*engine)->fork(*parent);
    if (!fork.ok()) return fork.status();
    const auto cold = ask(**engine, *parent);
    if (!cold.ok()) return cold.status();
    report_.cold_dense = compare(*dense, *cold, question);

    const auto add = [&](const char* path, const Rows& rows) {
      report_.paths.push_back({path, compare(*cold, rows, question), compare(*dense, rows, question)});
    };
    const auto forked = ask(**engine, *fork);
    if (!forked.ok()) return forked.status();
    add("fork", *forked);

    const auto opened = (*engine)->open(part(0, options_.prefix_tokens + options_.question_tokens));
    if (!opened.ok()) return opened.status();
    Rows rest;
    const int left = options_.prefix_tokens - opened->cached_tokens;
    if (left < 0) return internal_error("the hit covers the question");
    if (left > 0) {
      if (Status s = (*engine)->feed(opened->session, part(opened->cached_tokens, left), Logits::kNone, rest); !s.ok())
        return s;
    }
    const auto hit = ask(**engine, opened->session);
    if (!hit.ok()) return hit.status();
    add("hit", *hit);

    // The prefix in one step, so that its conversions are still under way when the question is read token by token.
    Profile slow = scoring(false);
    slow.convert_tokens_per_step = 8;
    const auto slow_engine = make(slow);
    if (!slow_engine.ok()) return slow_engine.status();
    const auto session = read(**slow_engine);
    if (!session.ok()) return session.status();
    Rows rows, row;
    for (const int32_t& token : question) {
      const Feed feed{*session, {&token, 1}, Logits::kLast};
      if (Status s = (*slow_engine)->step({&feed, 1}, row); !s.ok()) return s;
      rows.insert(rows.end(), row.begin(), row.end());
    }
    add("converting while read", rows);
    return progress("paths to one prefix", 1, 1);
  }

  /// After shift_tokens of text, page `shift_page` once more, token by token: attention goes back to it.
  Status measure_shift() {
    const int page_tokens = options_.profile.page_tokens;
    const Text again = part(report_.shift_page_start, page_tokens);
    const auto dense_profile = Profile::named("dense");
    if (!dense_profile.ok()) return dense_profile.status();
    std::vector<Rows> reference;
    if (Status s = follow(*dense_profile, again, nullptr, reference, nullptr); !s.ok()) return s;

    const std::pair<const char*, const char*> arms[] = {
        {"scoring off", ""}, {"lossy", "none"}, {"recompute", "recompute"}, {"host", "host"}, {"disk", "disk"}};
    int done = 0;
    for (const auto& [name, restore] : arms) {
      Profile profile = scoring(*restore != 0);
      if (*restore != 0) profile.scoring.restore = restore;
      ShiftArm arm;
      arm.name = name;
      std::vector<Rows> rows;
      if (Status s = follow(profile, again, &arm, rows, &reference); !s.ok()) return s;
      report_.shift.push_back(std::move(arm));
      if (Status s = progress("attention returns", ++done, int(std::size(arms))); !s.ok()) return s;
    }
    int latest = 0;
    for (const ShiftArm& arm : report_.shift) latest = std::max(latest, arm.promoted_at);
    for (ShiftArm& arm : report_.shift) {
      std::vector<TokenDivergence> before, after;
      for (size_t i = 0; i < arm.kl.size(); ++i) {
        TokenDivergence d;
        d.kl = arm.kl[i];
        (int(i) <= latest ? before : after).push_back(d);
      }
      arm.before = summarize(before);
      arm.after = summarize(after);
    }
    return {};
  }

  Status follow(const Profile& profile, Text again, ShiftArm* arm, std::vector<Rows>& rows,
                const std::vector<Rows>* reference) {
    int at = -1;
    const auto watch = [&](const Transition& t) {
      if (arm == nullptr || arm->promoted_at >= 0 || at < 0) return;
      if (t.from == "stale1" && t.to == "anchor" && t.outcome == "published" && t.window == 0 &&
          t.page_start == report_.shift_page_start) {
        arm->promoted_at = at;
      }
    };
    const auto engine = make(profile, 0, watch);
    if (!engine.ok()) return engine.status();
    const auto session = (*engine)->start();
    if (!session.ok()) return session.status();
    Rows row;
    if (Status s = (*engine)->feed(*session, part(0, options_.shift_tokens), Logits::kNone, row); !s.ok()) return s;
    double seconds = 0;
    for (const int32_t& token : again) {
      ++at;
      const auto step = timed_step(**engine, *session, token, row);
      if (!step.ok()) return step.status();
      seconds += *step;
      if (arm != nullptr) arm->kl.push_back(compare_logits((*reference)[size_t(at)], row, -1).kl);
      if (reference == nullptr) rows.push_back(row);
    }
    if (arm == nullptr) return {};
    const EngineStats stats = (*engine)->stats();
    for (const auto& [how, count] : stats.promotions) arm->promotions += count;
    arm->recomputed_tokens = stats.recomputed_tokens;
    arm->physical_bytes = stats.kv.physical_bytes;
    arm->refinement_bytes = stats.refinement_bytes;
    arm->step_ms = seconds * 1e3 / double(again.size());
    return {};
  }

  const std::shared_ptr<model::Model>& model_;
  const Text text_;
  const LifecycleOptions& options_;
  LifecycleReport report_;
};

}  // namespace

Result<LifecycleReport> measure_lifecycle(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                          const LifecycleOptions& options) {
  if (options.profile.formats.anchor.empty()) {
    return invalid_argument("profile " + options.profile.name + " has no anchor tier: nothing can be promoted");
  }
  const int needed = std::max({options.depth_tokens + std::max(options.decode_tokens, 32),
                               options.prefix_tokens + options.question_tokens, options.shift_tokens});
  if (int(text.size()) < needed) {
    return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; this bench reads " +
                            std::to_string(needed));
  }
  if (needed + options.profile.page_tokens > model->info().context_train) {
    return context_overflow("this bench reads " + std::to_string(needed + options.profile.page_tokens) +
                            " tokens; the model was trained on " + std::to_string(model->info().context_train));
  }
  if ((options.shift_page + 1) * options.profile.page_tokens + options.profile.recent_tokens > options.shift_tokens) {
    return invalid_argument("page " + std::to_string(options.shift_page) + " is not old after " +
                            std::to_string(options.shift_tokens) + " tokens");
  }
  return Bench(model, text, options).run();
}

}  // namespace varve::eval
