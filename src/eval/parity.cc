#include "eval/parity.h"

#include <algorithm>
#include <cmath>

#include "eval/divergence.h"
#include "eval/peer.h"

namespace varve::eval {
namespace {

using Logits2d = std::vector<std::vector<float>>;  ///< [steps][vocabulary]

ParityDistance distance(const Logits2d& a, const Logits2d& b) {
  ParityDistance d;
  for (size_t i = 0; i < a.size(); ++i) {
    const TokenDivergence t = compare_logits(a[i], b[i], -1);
    d.mean_kl += t.kl / double(a.size());
    d.max_kl = std::max(d.max_kl, t.kl);
    d.max_delta = std::max(d.max_delta, t.max_delta);
  }
  return d;
}

struct Top {
  int32_t token;
  double lead;
};

Top top_of(const std::vector<float>& logits) {
  const auto first = std::max_element(logits.begin(), logits.end());
  float second = -INFINITY;
  for (auto it = logits.begin(); it != logits.end(); ++it) {
    if (it != first) second = std::max(second, *it);
  }
  return {static_cast<int32_t>(first - logits.begin()), double(*first) - double(second)};
}

/// Logits after the prompt and after each continuation token but the last. An empty continuation is chosen greedily.
Result<Logits2d> run_peer(const std::shared_ptr<model::Model>& model, const ParityOptions& options, bool flash,
                          int micro_batch, std::span<const int32_t> prompt, std::vector<int32_t>& continuation) {
  auto peer = Peer::create(model, {.context_tokens = options.prompt_tokens + options.steps + 64,
                                   .threads = options.threads,
                                   .batch_tokens = std::max(options.prompt_tokens, 512),
                                   .micro_batch_tokens = micro_batch,
                                   .flash_attention = flash});
  if (!peer.ok()) return peer.status();
  const bool choose = continuation.empty();
  Logits2d out;
  if (Status s = peer->feed(prompt); !s.ok()) return s;
  for (int i = 0; i < options.steps; ++i) {
    out.emplace_back(peer->logits().begin(), peer->logits().end());
    if (choose) continuation.push_back(top_of(out.back()).token);
    if (i + 1 == options.steps) break;
    if (Status s = peer->feed({&continuation[size_t(i)], 1}); !s.ok()) return s;
  }
  return out;
}

Result<Logits2d> run_ours(const std::shared_ptr<model::Model>& model, const ParityOptions& options, int chunk,
                          std::span<const int32_t> prompt, std::span<const int32_t> continuation) {
  const auto dense = Profile::named("dense");
  if (!dense.ok()) return dense.status();
  EngineOptions engine_options;
  engine_options.profile = *dense;
  engine_options.threads = options.threads;
  engine_options.kernel = options.kernel;
  engine_options.chunk_tokens = chunk;
  engine_options.weight_gemm = "ggml";  // libllama's rounding of activations, or parity would measure that
  const auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return engine.status();
  const auto session = (*engine)->start();
  if (!session.ok()) return session.status();
  Logits2d out;
  std::vector<float> logits;
  if (Status s = (*engine)->feed(*session, prompt, Logits::kLast, logits); !s.ok()) return s;
  for (int i = 0; i < options.steps; ++i) {
    out.push_back(logits);
    if (i + 1 == options.steps) break;
    const Feed feed{*session, continuation.subspan(size_t(i), 1), Logits::kLast};
    if (Status s = (*engine)->step({&feed, 1}, logits); !s.ok()) return s;
  }
  return out;
}

}  // namespace

Result<ParityReport> measure_parity(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                    const ParityOptions& options) {
  if (int(text.size()) < options.prompt_tokens) {
    return invalid_argument("the text has " + std::to_string(text.size()) + " tokens; parity reads " +
                            std::to_string(options.prompt_tokens));
  }
  const auto prompt = text.first(static_cast<size_t>(options.prompt_tokens));
  const int total = 4 + static_cast<int>(options.chunks.size());
  int done = 0;
  const auto report = [&](const char* what) {
    if (options.progress) options.progress(what, done++, total);
  };

  std::vector<int32_t> continuation;
  report("libllama");
  const auto reference = run_peer(model, options, false, 512, prompt, continuation);
  if (!reference.ok()) return reference.status();
  report("libllama, flash attention");
  const auto flash = run_peer(model, options, true, 512, prompt, continuation);
  if (!flash.ok()) return flash.status();
  report("libllama, micro-batch 64");
  const auto small = run_peer(model, options, false, 64, prompt, continuation);
  if (!small.ok()) return small.status();
  report("varve");
  const auto ours = run_ours(model, options, options.prompt_tokens, prompt, continuation);
  if (!ours.ok()) return ours.status();

  ParityReport out;
  out.flash_floor = distance(*reference, *flash);
  out.micro_batch_floor = distance(*reference, *small);
  out.ours = distance(*reference, *ours);
  const double floor_delta = std::max(out.flash_floor.max_delta, out.micro_batch_floor.max_delta);
  for (size_t i = 0; i < ours->size(); ++i) {
    const Top theirs = top_of((*reference)[i]);
    if (top_of((*ours)[i]).token == theirs.token) continue;
    ++out.greedy_differences;
    out.greedy_differences_above_floor += theirs.lead >= floor_delta;
  }
  for (const int chunk : options.chunks) {
    report("varve in chunks");
    const auto chunked = run_ours(model, options, chunk, prompt, continuation);
    if (!chunked.ok()) return chunked.status();
    out.chunked.emplace_back(chunk, distance(*ours, *chunked));
  }
  return out;
}

std::vector<BenchRow> parity_rows(const std::string& name, const ParityReport& report) {
  const std::map<std::string, double> floors = {
      {"libllama flash attention on against off", report.flash_floor.mean_kl},
      {"libllama micro-batch 64 against 512", report.micro_batch_floor.mean_kl}};
  const auto row = [&](std::string what, double kl) {
    BenchRow r{.suite = "parity", .name = std::move(what), .unit = "mean KL, nats", .higher_is_better = false};
    r.ours = kl;
    r.peers = floors;
    r.ratio = kl > 0 ? report.bound() / (2 * kl) : INFINITY;
    r.target = 0.5;  // at most twice the larger floor
    return r;
  };
  std::vector<BenchRow> rows = {row(name + ": varve dense against libllama", report.ours.mean_kl)};
  for (const auto& [chunk, d] : report.chunked) {
    rows.push_back(row(name + ": chunks of " + std::to_string(chunk) + " against one shot", d.mean_kl));
  }
  return rows;
}

}  // namespace varve::eval
