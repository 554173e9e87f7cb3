#include "eval/speed.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/median.h"
#include "eval/contender.h"

namespace varve::eval {
namespace {

struct Entry {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> rates;  ///< tokens per second, one per round
};

class Runner {
 public:
  Runner(std::span<const int32_t> text, const SpeedOptions& options) : text_(text), options_(options) {}

  /// Rounds of prefilling `tokens` from empty, contenders taking turns.
  Status time_prefill(std::vector<Entry*> entries, int tokens) {
    const auto prompt = text_.first(static_cast<size_t>(tokens));
    for (Entry* e : entries) e->rates.clear();
    for (int round = -1; round < options_.rounds; ++round) {  // round -1 warms caches and pools up
      for (Entry* e : entries) {
        let_threads_sleep();
        const double start = now_s();
        if (Status s = e->contender->prefill(prompt); !s.ok()) return s;
        if (round >= 0) e->rates.push_back(tokens / (now_s() - start));
      }
      report("prefill " + std::to_string(tokens), round + 1, options_.rounds);
    }
    return {};
  }

  Status fill(Entry& entry, int depth) {
    report(entry.name + ": reading " + std::to_string(depth) + " tokens", 0, 1);
    return entry.contender->prefill(text_.first(static_cast<size_t>(depth)));
  }

  /// Rounds of decoding from the state that fill() left, contenders taking turns.
  Status time_decode(std::vector<Entry*> entries, int depth) {
    const auto next = text_.subspan(static_cast<size_t>(depth), static_cast<size_t>(options_.decode_tokens));
    for (Entry* e : entries) e->rates.clear();
    for (int round = -1; round < options_.rounds; ++round) {
      for (Entry* e : entries) {
        const auto seconds = timed_decode(*e->contender, next);
        if (!seconds.ok()) return seconds.status();
        if (round >= 0) e->rates.push_back(options_.decode_tokens / *seconds);
      }
      report("decode at " + std::to_string(depth), round + 1, options_.rounds);
    }
    return {};
  }

  static BenchRow row(std::string name, const Entry& ours, std::vector<const Entry*> peers, double target) {
    BenchRow r{.suite = "speed", .name = std::move(name), .unit = "tok/s", .peers = {}, .target = target};
    r.ours = median(ours.rates);
    double best = 0;
    for (const Entry* p : peers) best = std::max(best, r.peers[p->name] = median(p->rates));
    r.ratio = r.ours / best;
    return r;
  }

 private:
  void report(const std::string& what, int done, int total) const {
    if (options_.progress) options_.progress(what, done, total);
  }
  std::span<const int32_t> text_;
  const SpeedOptions& options_;
};

}  // namespace

Result<std::vector<BenchRow>> measure_speed(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                            const SpeedOptions& options) {
  const bool with_profile = !options.profile.is_dense();
  const int context = model->info().context_train;
  const int depth = std::min(options.depth_tokens, context - options.decode_tokens);
  const int profile_depth = std::min(options.profile_depth_tokens, context - options.decode_tokens);
  const int needed =
      std::max({depth, with_profile ? profile_depth : 0, options.prefill_tokens}) + options.decode_tokens;
  if (int(text.size()) < needed) {
    return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; this bench reads " +
                            std::to_string(needed));
  }
  const auto dense_profile = Profile::named("dense");
  if (!dense_profile.ok()) return dense_profile.status();

  Entry dense{"varve dense", nullptr, {}}, compressed{"varve " + options.profile.name, nullptr, {}};
  Entry off{"llama.cpp f16, flash attention off", nullptr, {}}, on{"llama.cpp f16, flash attention on", nullptr, {}};
  const int peer_context = depth + options.decode_tokens + 64;
  auto make = [](Entry& entry, Result<std::unique_ptr<Contender>> made) -> Status {
    if (!made.ok()) return made.status();
    entry.contender = std::move(*made);
    return {};
  };
  const auto peer = [&](bool flash) {
    return PeerOptions{.context_tokens = peer_context, .threads = options.threads, .flash_attention = flash};
  };
  if (Status s = make(dense, our_contender(model, {*dense_profile, options.threads, options.kernel})); !s.ok())
    return s;
  if (Status s = make(off, peer_contender(model, peer(false))); !s.ok()) return s;
  if (Status s = make(on, peer_contender(model, peer(true))); !s.ok()) return s;

  Runner runner(text, options);
  std::vector<BenchRow> rows;
  const std::vector<Entry*> against_peer = {&dense, &off, &on};
  if (Status s = runner.time_prefill(against_peer, options.prefill_tokens); !s.ok()) return s;
  rows.push_back(Runner::row("dense prefill " + std::to_string(options.prefill_tokens), dense, {&off, &on}, 0.95));
  for (const int d : {0, depth}) {
    for (Entry* e : against_peer) {
      if (Status s = runner.fill(*e, d); !s.ok()) return s;
    }
    if (Status s = runner.time_decode(against_peer, d); !s.ok()) return s;
    rows.push_back(Runner::row("dense decode at depth " + std::to_string(d), dense, {&off, &on}, 0.95));
  }
  off.contender.reset();
  on.contender.reset();

  if (with_profile) {
    if (Status s = make(compressed, our_contender(model, {options.profile, options.threads, options.kernel})); !s.ok())
      return s;
    for (Entry* e : {&dense, &compressed}) {
      if (Status s = runner.fill(*e, profile_depth); !s.ok()) return s;
    }
    if (Status s = runner.time_decode({&dense, &compressed}, profile_depth); !s.ok()) return s;
    rows.push_back(Runner::row(options.profile.name + " decode at depth " + std::to_string(profile_depth), compressed,
                               {&dense}, 1.0));
  }
  return rows;
}

}  // namespace varve::eval
