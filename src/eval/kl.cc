#include "eval/kl.h"

#include <algorithm>

#include "base/clock.h"

namespace varve::eval {
namespace {

struct Arm {
  std::unique_ptr<Engine> engine;
  SessionId session = 0;
  std::vector<TokenDivergence> divergences;
  std::vector<float> logits;
  double seconds = 0;

  /// Runs the engine's own step size, which may be smaller than `tokens`.
  Status step(std::span<const int32_t> tokens) {
    const double start = now_s();
    Status s = engine->feed(session, tokens, Logits::kAll, logits);
    seconds += now_s() - start;
    return s;
  }
};

Result<Arm> make_arm(const std::shared_ptr<model::Model>& model, const Profile& profile, int chunk_tokens,
                     const KlOptions& options) {
  EngineOptions engine_options;
  engine_options.profile = profile;
  engine_options.threads = options.threads;
  engine_options.chunk_tokens = chunk_tokens;
  engine_options.kernel = options.kernel;
  engine_options.weight_gemm = options.weight_gemm;
  auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return engine.status();
  Arm arm;
  arm.engine = std::move(*engine);
  const auto session = arm.engine->start();
  if (!session.ok()) return session.status();
  arm.session = *session;
  return arm;
}

}  // namespace

Result<KlReport> measure_kl(const std::shared_ptr<model::Model>& model, std::span<const int32_t> tokens,
                            const KlOptions& options) {
  const int total = static_cast<int>(tokens.size());
  if (total < 2) return invalid_argument("a text of " + std::to_string(total) + " tokens; KL needs at least 2");
  const int skip = options.skip_tokens >= 0 ? options.skip_tokens : std::min(1024, total / 4);
  if (skip >= total) {
    return invalid_argument("skipping " + std::to_string(skip) + " of " + std::to_string(total) +
                            " tokens leaves nothing to compare");
  }
  const auto dense = Profile::named("dense");
  if (!dense.ok()) return dense.status();
  auto reference = make_arm(model, *dense, options.chunk_tokens, options);
  if (!reference.ok()) return reference.status();
  std::vector<Profile> profiles = options.arms;
  std::vector<Arm> arms;
  if (options.floor && options.chunk_tokens > kFloorChunk) {
    profiles.insert(profiles.begin(), *dense);
    profiles[0].name = "floor";
  }
  for (const Profile& profile : profiles) {
    const int chunk = profile.name == "floor" ? kFloorChunk : options.chunk_tokens;
    auto arm = make_arm(model, profile, chunk, options);
    if (!arm.ok()) return Status(arm.status().code(), "arm " + profile.name + ": " + arm.status().message());
    arms.push_back(std::move(*arm));
  }

  const size_t vocabulary = static_cast<size_t>(reference->engine->vocabulary());
  for (int done = 0; done < total;) {
    const int n = std::min(options.chunk_tokens, total - done);
    const auto chunk = tokens.subspan(size_t(done), size_t(n));
    if (Status s = reference->step(chunk); !s.ok()) return s;
    for (Arm& arm : arms) {
      if (Status s = arm.step(chunk); !s.ok()) return s;
      for (int i = std::max(0, skip - done); i < n; ++i) {
        const size_t at = static_cast<size_t>(i) * vocabulary;
        const int next = done + i + 1 < total ? tokens[static_cast<size_t>(done + i + 1)] : -1;
        arm.divergences.push_back(
            compare_logits({reference->logits.data() + at, vocabulary}, {arm.logits.data() + at, vocabulary}, next));
      }
    }
    done += n;
    if (options.progress && !options.progress(done, total)) return Status(StatusCode::kCancelled, "stopped");
  }

  KlReport report{.tokens = total, .skipped = skip, .dense_seconds = reference->seconds, .arms = {}};
  for (size_t i = 0; i < arms.size(); ++i) {
    report.arms.push_back({.profile = profiles[i],
                           .summary = summarize(arms[i].divergences),
                           .stats = arms[i].engine->stats(),
                           .seconds = arms[i].seconds});
  }
  return report;
}

}  // namespace varve::eval
