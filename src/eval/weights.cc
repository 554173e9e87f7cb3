#include "eval/weights.h"

#include <algorithm>

#include "base/clock.h"
#include "base/median.h"
#include "eval/divergence.h"
#include "varve/engine.h"

namespace varve::eval {
namespace {

struct Side {
  std::unique_ptr<Engine> engine;
  std::vector<float> logits;
  std::vector<double> rates;  ///< tokens per second, one per round

  Status read(std::span<const int32_t> tokens, Logits want) {
    const auto session = engine->start();
    if (!session.ok()) return session.status();
    const double start = now_s();
    const Status s = engine->feed(*session, tokens, want, logits);
    rates.push_back(static_cast<double>(tokens.size()) / (now_s() - start));
    engine->finish(*session);
    return s;
  }
};

Result<Side> make_side(const std::shared_ptr<model::Model>& model, const std::string& weight_gemm,
                       const WeightOptions& options) {
  auto dense = Profile::named("dense");
  if (!dense.ok()) return dense.status();
  EngineOptions engine_options;
  engine_options.profile = *dense;
  engine_options.threads = options.threads;
  engine_options.kernel = options.kernel;
  engine_options.weight_gemm = weight_gemm;
  auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return engine.status();
  Side side;
  side.engine = std::move(*engine);
  return side;
}

}  // namespace

Result<std::vector<BenchRow>> measure_weights(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                              const WeightOptions& options) {
  auto ours = make_side(model, "auto", options), ggml = make_side(model, "ggml", options);
  if (!ours.ok()) return ours.status();
  if (!ggml.ok()) return ggml.status();
  const int longest =
      std::max(options.compared_tokens, *std::max_element(options.prompts.begin(), options.prompts.end()));
  if (static_cast<int>(text.size()) < longest) {
    return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; this bench reads " +
                            std::to_string(longest));
  }
  std::vector<BenchRow> rows;
  for (const int tokens : options.prompts) {
    const auto prompt = text.first(static_cast<size_t>(tokens));
    for (int round = -1; round < options.rounds; ++round) {  // round -1 warms caches and pools up
      for (Side* side : {&*ours, &*ggml}) {
        if (round == 0) side->rates.clear();
        if (Status s = side->read(prompt, Logits::kLast); !s.ok()) return s;
      }
      if (options.progress) options.progress("prefill " + std::to_string(tokens), round + 1, options.rounds);
    }
    BenchRow row{.suite = "weights", .name = "prefill of " + std::to_string(tokens), .unit = "tok/s", .peers = {}};
    row.ours = median(ours->rates);
    row.peers["ggml"] = median(ggml->rates);
    row.ratio = row.ours / row.peers["ggml"];
    rows.push_back(std::move(row));
    ours->rates.clear();
    ggml->rates.clear();
  }

  const auto compared = text.first(static_cast<size_t>(options.compared_tokens));
  for (Side* side : {&*ours, &*ggml}) {
    if (Status s = side->read(compared, Logits::kAll); !s.ok()) return s;
  }
  const auto vocabulary = static_cast<size_t>(model->info().vocabulary);
  std::vector<TokenDivergence> divergences;
  for (size_t i = 0; i < compared.size(); ++i) {
    const int next = i + 1 < compared.size() ? compared[i + 1] : -1;
    divergences.push_back(compare_logits({ggml->logits.data() + i * vocabulary, vocabulary},
                                         {ours->logits.data() + i * vocabulary, vocabulary}, next));
  }
  BenchRow kl{
      .suite = "weights", .name = "KL(ggml || auto), mean", .unit = "nats", .higher_is_better = false, .peers = {}};
  const DivergenceSummary summary = summarize(divergences);
  kl.ours = summary.mean;
  kl.peers["max"] = summary.max;
  kl.peers["perplexity ratio"] = summary.ppl_ratio;
  kl.ratio = 1;
  rows.push_back(std::move(kl));

  BenchRow memory{
      .suite = "weights", .name = "activations and panels", .unit = "MiB", .higher_is_better = false, .peers = {}};
  const auto mib = [](const Side& side) { return static_cast<double>(side.engine->stats().compute_bytes) / (1 << 20); };
  memory.ours = mib(*ours);
  memory.peers["ggml"] = mib(*ggml);
  memory.ratio = memory.peers["ggml"] / memory.ours;
  rows.push_back(std::move(memory));
  return rows;
}

}  // namespace varve::eval
