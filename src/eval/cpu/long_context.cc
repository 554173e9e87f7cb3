#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/median.h"
#include "eval/contender.h"
#include "eval/cpu/busy_process.h"
#include "eval/cpu/cpu_bench.h"
#include "eval/kl.h"

namespace varve::eval {
namespace {

struct PeerSetting {
  const char* type;
  bool flash;
  const char* name;
};
constexpr PeerSetting kPeerSettings[] = {{"f16", false, "llama.cpp f16, flash attention off"},
                                         {"f16", true, "llama.cpp f16, flash attention on"},
                                         {"q8_0", true, "llama.cpp q8_0, flash attention on"},
                                         {"q4_0", true, "llama.cpp q4_0, flash attention on"}};

/// Least ratios wanted, by architecture and depth.
struct Targets {
  std::optional<double> decode, of_depth_0, dense, ttft, sessions, busy;
};
Targets targets_of(const std::string& architecture, int depth, bool wanted) {
  Targets t;
  if (!wanted) return t;
  t.dense = 1.5;
  t.sessions = 3;
  t.busy = 3;
  if (architecture == "llama" && depth == 7900) {
    t.decode = 2.5;
    t.of_depth_0 = 0.75;
    t.ttft = 2;
  } else if (architecture == "qwen2" && depth == 8192) {
    t.decode = 2;
    t.of_depth_0 = 0.85;
    t.ttft = 2;
  } else if (architecture == "qwen2" && depth == 16384) {
    t.decode = 3;
    t.of_depth_0 = 0.75;
  }
  return t;
}

struct Entry {
  std::string name;
  std::unique_ptr<Contender> contender;
  double prefill_s = 0;
  std::vector<double> step_s = {};  ///< mean of a decode step, one per round
};

class LongContext {
 public:
  LongContext(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text, const CpuBenchOptions& options)
      : model_(model), text_(text), options_(options) {}

  /// Tells the peer's settings apart at a small depth: the two that decode fastest, and the one that reads fastest.
  Status screen() {
    struct Score {
      size_t setting;
      double step_s, prefill_s;
    };
    std::vector<Score> scores;
    for (size_t i = 0; i < std::size(kPeerSettings); ++i) {
      Entry e;
      if (Status s = make_peer(i, options_.screen_tokens, 1, &e); !s.ok()) return s;
      if (Status s = fill(e, options_.screen_tokens); !s.ok()) return s;
      if (Status s =
              decode({&e}, options_.screen_tokens, std::min(2, options_.rounds), std::min(8, options_.decode_tokens));
          !s.ok())
        return s;
      scores.push_back({i, median(e.step_s), e.prefill_s});
      rows.push_back({.suite = "screening",
                      .name = std::string(e.name) + " decode at " + std::to_string(options_.screen_tokens),
                      .unit = "tok/s",
                      .ours = 1 / scores.back().step_s,
                      .details = {{"prefill tok/s", options_.screen_tokens / e.prefill_s}}});
    }
    std::sort(scores.begin(), scores.end(), [](const Score& a, const Score& b) { return a.step_s < b.step_s; });
    best_ = {scores[0].setting, scores[1].setting};
    best_reader_ = std::min_element(scores.begin(), scores.end(), [](const Score& a, const Score& b) {
                     return a.prefill_s < b.prefill_s;
                   })->setting;
    return {};
  }

  Status at_depth(int depth) {
    const Targets target = targets_of(model_->info().architecture, depth, options_.targets);
    Entry compressed, dense;
    std::vector<Entry> peers;
    if (Status s = make_all(depth, 1, &compressed, &dense, &peers); !s.ok()) return s;
    std::vector<Entry*> all = {&compressed, &dense};
    for (Entry& p : peers) all.push_back(&p);

    std::vector<Entry*> decoding = {&compressed, &dense};
    for (size_t i = 0; i < best_.size(); ++i) decoding.push_back(&peers[i]);
    for (Entry* e : decoding) {
      if (Status s = e->contender->prefill({}); !s.ok()) return s;
    }
    if (Status s = decode(decoding, 0, options_.rounds, options_.decode_tokens); !s.ok()) return s;
    double peer_at_0 = std::numeric_limits<double>::infinity();
    for (size_t i = 2; i < decoding.size(); ++i) peer_at_0 = std::min(peer_at_0, median(decoding[i]->step_s));

    for (Entry* e : all) {
      if (Status s = fill(*e, depth); !s.ok()) return s;
    }
    if (Status s = decode(decoding, depth, options_.rounds, options_.decode_tokens); !s.ok()) return s;
    const std::vector<const Entry*> against(decoding.begin() + 2, decoding.end());
    const std::string at = " at depth " + std::to_string(depth);
    rows.push_back(rate_row("decode", compressed.name + at, compressed, against, 1, target.decode));
    rows.push_back(rate_row("decode", dense.name + at, dense, against, 1, target.dense));
    BenchRow of_0{.suite = "decode",
                  .name = compressed.name + at + " against llama.cpp at depth 0",
                  .unit = "tok/s",
                  .ours = 1 / median(compressed.step_s),
                  .peers = {{"llama.cpp at depth 0", 1 / peer_at_0}},
                  .target = target.of_depth_0};
    of_0.ratio = of_0.ours * peer_at_0;
    rows.push_back(of_0);

    for (const Entry* ours : {&compressed, &dense}) {
      BenchRow ttft{.suite = "time to first token",
                    .name = ours->name + at,
                    .unit = "s",
                    .higher_is_better = false,
                    .ours = ours->prefill_s,
                    .target = ours == &compressed ? target.ttft : std::nullopt};
      double best = std::numeric_limits<double>::infinity();
      for (const Entry& p : peers) best = std::min(best, ttft.peers[p.name] = p.prefill_s);
      ttft.ratio = best / ttft.ours;
      rows.push_back(std::move(ttft));
    }
    return depth == options_.depths.front() ? beside_busy_process(depth, decoding, target.busy) : Status();
  }

  /// The decode of at_depth() again, with one more process that wants a core.
  Status beside_busy_process(int depth, const std::vector<Entry*>& decoding, std::optional<double> target) {
    const auto busy = BusyProcess::start();
    if (!busy.ok()) return busy.status();
    if (Status s = decode(decoding, depth, std::min(3, options_.rounds), std::min(8, options_.decode_tokens));
        !s.ok()) {
      return s;
    }
    rows.push_back(rate_row("decode beside a busy process",
                            decoding.front()->name + " at depth " + std::to_string(depth), *decoding.front(),
                            {decoding.begin() + 2, decoding.end()}, 1, target));
    return {};
  }

  Status together(int depth) {
    Entry compressed;
    if (Status s = make_ours(options_.profile, options_.sessions, &compressed); !s.ok()) return s;
    std::vector<Entry> peers(best_.size());
    for (size_t i = 0; i < best_.size(); ++i) {
      if (Status s = make_peer(best_[i], depth, options_.sessions, &peers[i]); !s.ok()) return s;
    }
    std::vector<Entry*> all = {&compressed};
    for (Entry& p : peers) all.push_back(&p);
    for (Entry* e : all) {
      if (Status s = fill(*e, depth); !s.ok()) return s;
    }
    if (Status s = decode(all, depth, options_.rounds, options_.decode_tokens); !s.ok()) return s;
    const Targets target = targets_of(model_->info().architecture, depth, options_.targets);
    rows.push_back(rate_row(
        "sessions together",
        compressed.name + ", " + std::to_string(options_.sessions) + " sessions at depth " + std::to_string(depth),
        compressed, {all.begin() + 1, all.end()}, options_.sessions, target.sessions));
    return {};
  }

  Status divergence() {
    KlOptions kl;
    kl.arms = {options_.profile};
    kl.floor = false;
    kl.threads = options_.threads;
    kl.kernel = options_.kernel;
    kl.progress = [&](int done, int total) { return report("divergence from dense", done, total).ok(); };
    const auto result = measure_kl(model_, text_.first(static_cast<size_t>(options_.kl_tokens)), kl);
    if (!result.ok()) return result.status();
    for (const KlArm& arm : result->arms) {
      if (arm.profile.name != options_.profile.name) continue;
      rows.push_back(
          {.suite = "quality",
           .name = "KL(dense || " + arm.profile.name + ") over " + std::to_string(options_.kl_tokens) + " tokens",
           .unit = "nats",
           .higher_is_better = false,
           .ours = arm.summary.mean,
           .details = {{"p99", arm.summary.p99},
                       {"same top", arm.summary.same_top},
                       {"perplexity ratio", arm.summary.ppl_ratio},
                       {"bytes ratio", arm.stats.kv.ratio()}}});
    }
    return {};
  }

  Status growth() {
    const std::vector<int>& contexts = options_.growth;
    Entry compressed, dense;
    std::vector<Entry> peers;
    if (Status s = make_all(contexts.back(), 1, &compressed, &dense, &peers); !s.ok()) return s;
    std::vector<Entry*> all = {&compressed, &dense};
    for (size_t i = 0; i < best_.size(); ++i) all.push_back(&peers[i]);
    std::vector<std::vector<double>> ms(all.size());  // by contender and context
    for (size_t c = 0; c < contexts.size(); ++c) {
      const int from = c == 0 ? 0 : contexts[c - 1];
      const auto part = text_.subspan(static_cast<size_t>(from), static_cast<size_t>(contexts[c] - from));
      for (Entry* e : all) {
        if (Status s = report(e->name + ": reading to " + std::to_string(contexts[c]), 0, 1); !s.ok()) return s;
        if (Status s = c == 0 ? e->contender->prefill(part) : e->contender->extend(part); !s.ok()) return s;
      }
      if (Status s = decode(all, contexts[c], options_.rounds, options_.decode_tokens); !s.ok()) return s;
      for (size_t i = 0; i < all.size(); ++i) ms[i].push_back(median(all[i]->step_s) * 1e3);
    }
    const auto row = [&](std::string name, const char* unit, size_t ours, auto value, std::optional<double> target) {
      BenchRow r{.suite = "growth",
                 .name = std::move(name),
                 .unit = unit,
                 .higher_is_better = false,
                 .ours = value(ours),
                 .target = target};
      double best = std::numeric_limits<double>::infinity();
      for (size_t i = 2; i < all.size(); ++i) best = std::min(best, r.peers[all[i]->name] = value(i));
      r.ratio = best / r.ours;
      rows.push_back(std::move(r));
    };
    for (size_t ours = 0; ours < 2; ++ours) {
      for (size_t c = 0; c < contexts.size(); ++c) {
        row(
            all[ours]->name + " decode step at " + std::to_string(contexts[c]), "ms", ours,
            [&](size_t i) { return ms[i][c]; }, std::nullopt);
      }
      row(
          all[ours]->name + " decode time per token of context", "us", ours,
          [&](size_t i) { return slope(contexts, ms[i]) * 1e3; },
          ours == 0 && options_.targets ? std::optional(6.0) : std::nullopt);
    }
    return {};
  }

  std::vector<BenchRow> rows;

 private:
  /// Least squares.
  static double slope(const std::vector<int>& x, const std::vector<double>& y) {
    const auto n = static_cast<double>(x.size());
    double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      mean_x += x[i] / n;
      mean_y += y[i] / n;
    }
    for (size_t i = 0; i < x.size(); ++i) {
      xy += (x[i] - mean_x) * (y[i] - mean_y);
      xx += (x[i] - mean_x) * (x[i] - mean_x);
    }
    return xy / xx;
  }

  Status make_ours(const Profile& profile, int sequences, Entry* e) const {
    auto made = our_contender(model_, {profile, options_.threads, options_.kernel, sequences});
    if (!made.ok()) return made.status();
    e->name = "varve " + profile.name;
    e->contender = std::move(*made);
    return {};
  }
  Status make_peer(size_t setting, int depth, int sequences, Entry* e) const {
    const PeerSetting& p = kPeerSettings[setting];
    auto made = peer_contender(model_, {.context_tokens = (depth + options_.decode_tokens + 255) / 256 * 256,
                                        .threads = options_.threads,
                                        .sequences = sequences,
                                        .flash_attention = p.flash,
                                        .kv_type = p.type});
    if (!made.ok()) return made.status();
    e->name = p.name;
    e->contender = std::move(*made);
    return {};
  }
  /// peers: those that decode fastest, then the one that reads fastest unless it is among them.
  Status make_all(int depth, int sequences, Entry* compressed, Entry* dense, std::vector<Entry>* peers) const {
    const auto dense_profile = Profile::named("dense");
    if (!dense_profile.ok()) return dense_profile.status();
    if (Status s = make_ours(options_.profile, sequences, compressed); !s.ok()) return s;
    if (Status s = make_ours(*dense_profile, sequences, dense); !s.ok()) return s;
    std::vector<size_t> settings = best_;
    if (std::find(settings.begin(), settings.end(), best_reader_) == settings.end()) settings.push_back(best_reader_);
    for (const size_t i : settings) {
      if (Status s = make_peer(i, depth, sequences, &peers->emplace_back()); !s.ok()) return s;
    }
    return {};
  }

  Status fill(Entry& e, int depth) const {
    if (Status s = report(e.name + ": reading " + std::to_string(depth) + " tokens", 0, 1); !s.ok()) return s;
    let_threads_sleep();
    const double start = now_s();
    if (Status s = e.contender->prefill(text_.first(static_cast<size_t>(depth))); !s.ok()) return s;
    e.prefill_s = now_s() - start;
    return {};
  }

  /// Rounds of `tokens` steps from what the contenders have read, taking turns; a first round is not counted.
  Status decode(const std::vector<Entry*>& entries, int depth, int rounds, int tokens) const {
    const auto next = text_.subspan(static_cast<size_t>(depth), static_cast<size_t>(tokens));
    for (Entry* e : entries) e->step_s.clear();
    for (int round = -1; round < rounds; ++round) {
      for (Entry* e : entries) {
        const auto seconds = timed_decode(*e->contender, next);
        if (!seconds.ok()) return seconds.status();
        if (round >= 0) e->step_s.push_back(*seconds / tokens);
      }
      if (Status s = report("decode at " + std::to_string(depth), round + 1, rounds); !s.ok()) return s;
    }
    return {};
  }

  static BenchRow rate_row(const char* suite, std::string name, const Entry& ours,
                           const std::vector<const Entry*>& peers, int sequences, std::optional<double> target) {
    BenchRow r{.suite = suite,
               .name = std::move(name),
               .unit = "tok/s",
               .ours = sequences / median(ours.step_s),
               .target = target};
    double best = 0;
    for (const Entry* p : peers) best = std::max(best, r.peers[p->name] = sequences / median(p->step_s));
    r.ratio = r.ours / best;
    return r;
  }

  Status report(const std::string& what, int done, int total) const {
    if (options_.progress && !options_.progress(what, done, total)) return {StatusCode::kCancelled, "stopped"};
    return {};
  }

  std::shared_ptr<model::Model> model_;
  std::span<const int32_t> text_;
  const CpuBenchOptions& options_;
  std::vector<size_t> best_;
  size_t best_reader_ = 0;
};

Status check_text(std::span<const int32_t> text, const CpuBenchOptions& options) {
  if (static_cast<int>(text.size()) >= options.text_tokens()) return {};
  return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; this bench reads " +
                          std::to_string(options.text_tokens()));
}

}  // namespace

CpuBenchOptions CpuBenchOptions::full(const model::ModelInfo& model) {
  CpuBenchOptions o;
  o.shapes = {{9, 3, 64, 32768}, {32, 8, 128, 16384}, {4, 1, 256, 32768}, {24, 4, 256, 16384}};
  const int most = model.context_train - o.decode_tokens;
  // A model of 8K context decodes at 7,900, where it has room to go on.
  if (most >= 16384) {
    o.depths = {8192, 16384};
  } else {
    o.depths = {std::min(7900, most)};
  }
  for (int context = 1024; context <= std::min(32768, most); context *= 2) o.growth.push_back(context);
  if (most < 32768 && most >= 7900) o.growth.push_back(most >= 8192 ? most : 7900);
  o.screen_tokens = std::min(o.screen_tokens, most);
  o.kl_tokens = std::min(o.kl_tokens, most);
  return o;
}

CpuBenchOptions CpuBenchOptions::quick(const model::ModelInfo&) {
  CpuBenchOptions o;
  o.shapes = {{9, 3, 64, 512}, {4, 1, 256, 512}};
  o.rotate_bytes = size_t{1} << 20;
  o.depths = {192};
  o.growth = {64, 128, 192};
  o.screen_tokens = 64;
  o.sessions = 2;
  o.decode_tokens = 2;
  o.rounds = 1;
  o.kl_tokens = 64;
  o.targets = false;
  return o;
}

int CpuBenchOptions::text_tokens() const {
  int deepest = std::max(depths.empty() && growth.empty() ? 0 : screen_tokens, kl_tokens);
  for (const std::vector<int>* list : {&depths, &growth}) {
    for (const int d : *list) deepest = std::max(deepest, d);
  }
  return deepest + decode_tokens;
}

Result<double> estimate_cpu_bench_s(const std::shared_ptr<model::Model>& model, const CpuBenchOptions& options) {
  PeerOptions peer;
  peer.context_tokens = 256;
  peer.threads = options.threads;
  auto contender = peer_contender(model, peer);
  if (!contender.ok()) return contender.status();
  const std::vector<int32_t> tokens(128, 0);
  double start = now_s();
  if (Status s = (*contender)->prefill(tokens); !s.ok()) return s;
  const double read_s = (now_s() - start) / 128;
  start = now_s();
  if (Status s = (*contender)->decode(0); !s.ok()) return s;
  const double step_s = now_s() - start;

  // A token at depth costs about twice as much to read as one at the start, and about four times as much to write.
  const bool screens = !options.depths.empty() || !options.growth.empty();
  double read = (screens ? 4.0 : 0.0) * options.screen_tokens + 3.0 * options.kl_tokens;
  double written = 0;
  const double steps = (options.rounds + 1.0) * options.decode_tokens;
  for (const int depth : options.depths) {
    read += 5.0 * depth;
    written += 8 * steps;
  }
  if (!options.depths.empty()) {
    read += (options.sessions + 2.0) * options.depths.front();
    written += 3 * options.sessions * steps;
  }
  if (!options.growth.empty()) {
    read += 5.0 * options.growth.back();
    written += 4 * steps * static_cast<double>(options.growth.size());
  }
  double attention = 0;
  for (const AttentionShape& s : options.shapes) {
    const double bytes = 4.0 * static_cast<double>(s.row()) * s.tokens;
    attention += 10 * (2 + 4e-9 * static_cast<double>(options.rotate_bytes) + 1e-7 * bytes);
  }
  return attention + 2 * read_s * read + 4 * step_s * written;
}

Result<std::vector<BenchRow>> measure_long_context(const std::shared_ptr<model::Model>& model,
                                                   std::span<const int32_t> text, const CpuBenchOptions& options) {
  if (Status s = check_text(text, options); !s.ok()) return s;
  LongContext bench(model, text, options);
  if (!options.depths.empty()) {
    if (Status s = bench.screen(); !s.ok()) return s;
    for (const int depth : options.depths) {
      if (Status s = bench.at_depth(depth); !s.ok()) return s;
    }
    if (Status s = bench.together(options.depths.front()); !s.ok()) return s;
  }
  if (options.kl_tokens > 0) {
    if (Status s = bench.divergence(); !s.ok()) return s;
  }
  return std::move(bench.rows);
}

Result<std::vector<BenchRow>> measure_growth(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                             const CpuBenchOptions& options) {
  if (Status s = check_text(text, options); !s.ok()) return s;
  if (options.growth.size() < 2) return invalid_argument("growth needs two contexts at least");
  LongContext bench(model, text, options);
  if (Status s = bench.screen(); !s.ok()) return s;
  if (Status s = bench.growth(); !s.ok()) return s;
  return std::move(bench.rows);
}

}  // namespace varve::eval
