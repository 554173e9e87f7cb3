#include "eval/step_profile.h"

#include <algorithm>

#include "base/clock.h"
#include "base/median.h"
#include "model/sampler.h"

namespace varve::eval {
namespace {

class Profiler {
 public:
  Profiler(Engine& engine, model::Sampler& sampler, std::span<const int32_t> text, const StepProfileOptions& options)
      : engine_(engine), sampler_(sampler), text_(text), options_(options) {}

  Status read(SessionId session, int tokens) {
    return engine_.feed(session, text_.first(size_t(tokens)), Logits::kNone, logits_, [&](int done, int total) {
      return !options_.progress || options_.progress("reading", done, total);
    });
  }

  /// Steps of `rows` tokens each, `steps` of them, from forks of `base`; the first round is not counted.
  Status measure(const char* what, SessionId base, int at, int rows, int steps, PhaseProfile* out) {
    std::vector<double> plain, probed;
    for (int round = -1; round < options_.rounds; ++round) {
      for (const bool probes : {false, true}) {
        PhaseProfile counted;
        engine_.time_steps(probes ? &counted.times : nullptr);
        // Changing that drops the graphs: a step that is not counted builds the one that the others find.
        const auto warm = engine_.fork(base);
        if (!warm.ok()) return warm.status();
        const Feed first{*warm, text_.subspan(size_t(at), size_t(rows)), Logits::kLast};
        Status status = engine_.step({&first, 1}, logits_);
        engine_.finish(*warm);
        counted.times = {.threads = std::vector<StepTimes::Thread>(counted.times.threads.size())};
        const auto session = engine_.fork(base);
        if (!session.ok()) return session.status();
        for (int i = 0; i < steps && status.ok(); ++i) {
          const double start = now_s();
          const Feed feed{*session, text_.subspan(size_t(at + i * rows), size_t(rows)), Logits::kLast};
          status = engine_.step({&feed, 1}, logits_);
          const double stepped = now_s();
          if (!status.ok()) break;
          const auto token = sampler_.sample(logits_);
          if (!token.ok()) status = token.status();
          const double sampled = now_s();
          if (round >= 0) (probes ? probed : plain).push_back(stepped - start);
          counted.sample_s += sampled - stepped;
        }
        engine_.time_steps(nullptr);
        engine_.finish(*session);
        if (!status.ok()) return status;
        if (probes && round >= 0) add(counted, out);
      }
      if (options_.progress && !options_.progress(what, round + 1, options_.rounds)) {
        return {StatusCode::kCancelled, "stopped"};
      }
    }
    out->plain_step_s = median(plain);
    out->probed_step_s = median(probed);
    return {};
  }

 private:
  static void add(const PhaseProfile& from, PhaseProfile* to) {
    StepTimes& sum = to->times;
    sum.steps += from.times.steps;
    for (const auto part :
         {&StepTimes::wall_s, &StepTimes::reserve_s, &StepTimes::plan_s, &StepTimes::prepare_s, &StepTimes::start_s,
          &StepTimes::weights_s, &StepTimes::append_s, &StepTimes::partial_s, &StepTimes::merge_s, &StepTimes::other_s,
          &StepTimes::output_s, &StepTimes::scores_s, &StepTimes::settle_s, &StepTimes::convert_s}) {
      sum.*part += from.times.*part;
    }
    sum.threads.resize(from.times.threads.size());
    for (size_t t = 0; t < sum.threads.size(); ++t) {
      using Thread = StepTimes::Thread;
      for (const auto part : {&Thread::append_s, &Thread::partial_s, &Thread::merge_s, &Thread::convert_s}) {
        sum.threads[t].*part += from.times.threads[t].*part;
      }
    }
    to->sample_s += from.sample_s;
  }

  Engine& engine_;
  model::Sampler& sampler_;
  std::span<const int32_t> text_;
  const StepProfileOptions& options_;
  std::vector<float> logits_;
};

}  // namespace

Result<StepProfileReport> profile_steps(const std::shared_ptr<model::Model>& model, std::span<const int32_t> text,
                                        const StepProfileOptions& options) {
  StepProfileReport report;
  report.depth_tokens = options.depth_tokens;
  report.chunk_tokens = std::min(options.chunk_tokens, options.depth_tokens);
  const int needed = options.depth_tokens + options.decode_tokens;
  if (options.depth_tokens < 1 || needed > model->info().context_train || int(text.size()) < needed) {
    return invalid_argument("a depth of " + std::to_string(options.depth_tokens) + " and " +
                            std::to_string(options.decode_tokens) + " decode steps; the text has " +
                            std::to_string(text.size()) + " tokens, the model's context " +
                            std::to_string(model->info().context_train));
  }
  EngineOptions engine_options;
  engine_options.profile = options.profile;
  engine_options.threads = options.threads;
  engine_options.kernel = options.kernel;
  engine_options.chunk_tokens = report.chunk_tokens;
  auto engine = Engine::create(model, engine_options);
  if (!engine.ok()) return engine.status();
  auto sampler = model::Sampler::create(model, {});
  if (!sampler.ok()) return sampler.status();
  const auto session = (*engine)->start();
  if (!session.ok()) return session.status();

  Profiler profiler(**engine, **sampler, text, options);
  const int before = options.depth_tokens - report.chunk_tokens;
  if (Status s = profiler.read(*session, before); !s.ok()) return s;
  if (Status s = profiler.measure("a prefill chunk", *session, before, report.chunk_tokens, 1, &report.prefill);
      !s.ok()) {
    return s;
  }
  std::vector<float> logits;
  if (Status s =
          (*engine)->feed(*session, text.subspan(size_t(before), size_t(report.chunk_tokens)), Logits::kNone, logits);
      !s.ok()) {
    return s;
  }
  if (Status s =
          profiler.measure("decode steps", *session, options.depth_tokens, 1, options.decode_tokens, &report.decode);
      !s.ok()) {
    return s;
  }
  report.threads = int(report.decode.times.threads.size());
  report.kernel = (*engine)->stats().kernel;
  return report;
}

}  // namespace varve::eval
