#include "eval/calibrate/arms.h"

#include <algorithm>

namespace varve::eval {
namespace {

constexpr int kStepTokens = 512;  ///< the engine's default: what scratch is counted for

Result<std::unique_ptr<Engine>> make_engine(const std::shared_ptr<model::Model>& model, const Profile& profile,
                                            const CalibrateOptions& options) {
  EngineOptions engine;
  engine.profile = profile;
  engine.threads = options.threads;
  engine.chunk_tokens = kStepTokens;
  engine.kernel = options.kernel;
  engine.weight_gemm = "fp32";
  return Engine::create(model, engine);
}

}  // namespace

Status TokenMeter::add(const std::string& what, int64_t tokens) {
  done_ += tokens;
  if (report_ && !report_(what, done_, std::max(done_, total_))) return Status(StatusCode::kCancelled, "stopped");
  return {};
}

Result<std::unique_ptr<Engine>> Arms::make(const Profile& profile) const {
  return make_engine(model_, profile, *options_);
}

Result<Arms> Arms::create(const std::shared_ptr<model::Model>& model, std::span<const std::vector<int32_t>> passages,
                          const CalibrateOptions& options, TokenMeter& meter) {
  Arms arms(options, meter);
  arms.model_ = model;
  const auto profile = Profile::named("dense");
  if (!profile.ok()) return profile.status();
  auto dense = arms.make(*profile);
  if (!dense.ok()) return dense.status();
  arms.dense_ = std::move(*dense);
  for (const std::vector<int32_t>& text : passages) {
    if (Status s = arms.read(text); !s.ok()) return s;
  }
  return arms;
}

Status Arms::read(std::span<const int32_t> text) {
  const auto prefill = static_cast<size_t>(options_->prefill_tokens), eval = static_cast<size_t>(options_->eval_tokens);
  Passage passage;
  passage.eval_text = text.subspan(prefill, eval);
  const auto session = dense_->start();
  if (!session.ok()) return session.status();
  passage.session = *session;
  std::vector<float> logits;
  for (size_t done = 0; done < prefill;) {
    const size_t n = std::min(prefill - done, size_t{kStepTokens});
    if (Status s = dense_->feed(*session, text.subspan(done, n), Logits::kNone, logits); !s.ok()) return s;
    if (Status s = meter_->add("reading", static_cast<int64_t>(n)); !s.ok()) return s;
    done += n;
  }
  const auto fork = dense_->fork(*session);
  if (!fork.ok()) return fork.status();
  if (Status s = dense_->feed(*fork, passage.eval_text, Logits::kAll, logits); !s.ok()) return s;
  dense_->finish(*fork);
  passage.reference = std::make_unique<DenseReference>(logits, static_cast<size_t>(dense_->vocabulary()));
  passages_.push_back(std::move(passage));
  return meter_->add("reading", options_->eval_tokens);
}

std::vector<SessionId> Arms::sessions() const {
  std::vector<SessionId> out;
  for (const Passage& p : passages_) out.push_back(p.session);
  return out;
}

Result<std::vector<ArmDivergence>> Arms::measure(const std::string& what, const Profile& profile, int step_tokens) {
  std::vector<ArmDivergence> out;
  Profile seeded = profile;
  for (const Passage& passage : passages_) {
    seeded.rotation_seed = options_->measure_seeds[out.size() % options_->measure_seeds.size()];
    const auto arm = measure(passage, seeded, step_tokens);
    if (!arm.ok()) return arm.status();
    out.push_back(*arm);
    if (Status s = meter_->add(what, options_->eval_tokens); !s.ok()) return s;
  }
  return out;
}

Result<ArmDivergence> Arms::measure(const Passage& passage, const Profile& profile, int step_tokens) {
  auto engine = make(profile);
  if (!engine.ok()) return engine.status();
  const auto adopted = (*engine)->adopt(*dense_, passage.session);
  if (!adopted.ok()) return adopted.status();
  // A fork begins with its parent's conversions finished: every old page is in the format under test.
  const auto session = (*engine)->fork(*adopted);
  if (!session.ok()) return session.status();
  (*engine)->finish(*adopted);
  std::vector<float> logits, part;
  const std::span<const int32_t> text = passage.eval_text;
  for (size_t done = 0; done < text.size();) {
    const size_t n = std::min(text.size() - done, static_cast<size_t>(step_tokens));
    if (Status s = (*engine)->feed(*session, text.subspan(done, n), Logits::kAll, part); !s.ok()) return s;
    logits.insert(logits.end(), part.begin(), part.end());
    done += n;
  }
  return passage.reference->compare(logits);
}

Result<size_t> Arms::scratch_bytes(const Profile& profile) {
  auto engine = make(profile);
  if (!engine.ok()) return engine.status();
  const auto session = (*engine)->adopt(*dense_, passages_.front().session);
  if (!session.ok()) return session.status();
  return (*engine)->stats().kv.scratch_bytes;
}

Profile single_layer_profile(const Profile& base, const PageShape& shape, int ordinal, const LayerCosts& layer,
                             const std::string& format) {
  Profile p;
  p.name = "layer " + std::to_string(ordinal) + " " + format;
  p.page_tokens = shape.page_tokens;
  p.recent_tokens = shape.recent_tokens;
  p.sink_tokens = base.sink_tokens;
  p.rotation_seed = base.rotation_seed;
  p.inner_product_norm = base.inner_product_norm;
  p.formats = {.recent = "f16", .anchor = {}, .stale1 = "f16", .stale2 = {}, .centre = "none"};
  p.layers = {{.first = ordinal,
               .last = ordinal,
               .formats = {.recent = layer.one_format ? format : base.formats.recent,
                           .anchor = {},
                           .stale1 = format,
                           .stale2 = {},
                           .centre = layer.centre}}};
  return p;
}

}  // namespace varve::eval
