#include "eval/speculation.h"

#include <algorithm>

#include "base/median.h"

namespace varve::eval {
namespace {

struct Side {
  std::vector<double> rates;
  std::vector<int32_t> answer;  ///< of the last round, without its last token
  engine::Generation generation;
};

/// One answer on a fork of the session that has read the prompt.
Status answer(Engine& engine, SessionId base, std::span<const float> first, const engine::Speculation& speculation,
              int tokens, Side& side) {
  const auto sampler = model::Sampler::create(engine.model(), {});
  if (!sampler.ok()) return sampler.status();
  const auto session = engine.fork(base);
  if (!session.ok()) return session.status();
  const size_t prompt = engine.tokens(*session).size();
  auto made = engine::generate(engine, *session, **sampler, first, {.max_tokens = tokens, .speculation = speculation});
  const auto held = engine.tokens(*session).subspan(prompt);
  side.answer.assign(held.begin(), held.end());
  engine.finish(*session);
  if (!made.ok()) return made.status();
  side.generation = std::move(*made);
  side.rates.push_back(side.generation.tokens_per_s());
  return {};
}

}  // namespace

Result<std::vector<BenchRow>> measure_speculation(Engine& engine, std::span<const SpeculationPrompt> prompts,
                                                  const SpeculationBenchOptions& options) {
  std::vector<BenchRow> rows;
  for (const SpeculationPrompt& prompt : prompts) {
    const auto base = engine.start();
    if (!base.ok()) return base.status();
    std::vector<float> first;
    if (Status s = engine.feed(*base, prompt.tokens, Logits::kLast, first); !s.ok()) return s;
    Side plain, fast;
    for (int round = -1; round < options.rounds; ++round) {  // round -1 warms up, the draft model's prompt included
      if (round == 0) plain.rates.clear(), fast.rates.clear();
      if (Status s = answer(engine, *base, first, {}, options.answer_tokens, plain); !s.ok()) return s;
      if (Status s = answer(engine, *base, first, options.speculation, options.answer_tokens, fast); !s.ok()) return s;
      if (options.progress && !options.progress(prompt.name, round + 1, options.rounds)) {
        return Status(StatusCode::kCancelled, "stopped after " + std::to_string(round + 1) + " rounds");
      }
    }
    engine.finish(*base);
    const size_t both = std::min(plain.answer.size(), fast.answer.size());
    const auto differ =
        std::mismatch(plain.answer.begin(), plain.answer.begin() + ptrdiff_t(both), fast.answer.begin());
    const engine::SpeculationStats& stats = fast.generation.speculation;
    BenchRow row{.suite = "speculate", .name = prompt.name, .unit = "tok/s", .peers = {}};
    row.ours = median(fast.rates);
    row.peers["plain"] = median(plain.rates);
    row.ratio = row.peers["plain"] > 0 ? row.ours / row.peers["plain"] : 0;
    row.details = {{"acceptance", stats.acceptance()},
                   {"drafted", double(stats.drafted)},
                   {"tokens", double(fast.generation.tokens)},
                   {"tokens_per_step", stats.steps != 0 ? double(fast.generation.tokens - 1) / double(stats.steps) : 0},
                   {"same_tokens", double(differ.first - plain.answer.begin())}};
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace varve::eval
