#include "engine/speculation/model_drafter.h"

#include <algorithm>

#include "engine/speculation/rejection.h"
#include "model/vocabulary.h"

namespace varve::engine {

ModelDrafter::ModelDrafter(std::unique_ptr<Engine> engine, std::unique_ptr<model::Sampler> sampler, bool greedy,
                           uint32_t seed, std::function<bool()> proceed)
    : engine_(std::move(engine)), sampler_(std::move(sampler)), greedy_(greedy), proceed_(std::move(proceed)) {
  std::seed_seq seeds{seed, 2u};  // independent of what judges the drafts
  random_.seed(seeds);
}

Result<std::unique_ptr<ModelDrafter>> ModelDrafter::create(std::unique_ptr<Engine> engine, const model::Model& target,
                                                           const model::SamplerOptions& sampling,
                                                           std::function<bool()> proceed) {
  if (Status s = model::check_same_vocabulary(target, *engine->model()); !s.ok()) return s;
  const model::SamplerOptions own{.temperature = sampling.temperature,
                                  .top_k = sampling.top_k,
                                  .top_p = sampling.top_p,
                                  .min_p = sampling.min_p,
                                  .penalty_tokens = 0,
                                  .seed = sampling.seed};
  auto sampler = model::Sampler::create(engine->model(), own);
  if (!sampler.ok()) return sampler.status();
  return std::unique_ptr<ModelDrafter>(new ModelDrafter(std::move(engine), std::move(*sampler),
                                                        sampling.temperature == 0, sampling.seed, std::move(proceed)));
}

Status ModelDrafter::follow(std::span<const int32_t> history, Logits wanted, std::vector<float>& logits) {
  const std::span<const int32_t> held = engine_->tokens(session_);
  size_t common =
      static_cast<size_t>(std::mismatch(held.begin(), held.end(), history.begin(), history.end()).first - held.begin());
  if (wanted != Logits::kNone) common = std::min(common, history.size() - 1);
  if (session_ == 0 || (common == 0 && !held.empty())) {
    engine_->finish(session_);
    const auto session = engine_->start();
    if (!session.ok()) return session.status();
    session_ = *session;
    common = 0;
  } else if (common < held.size()) {
    const auto kept = engine_->truncate(session_, static_cast<int>(common));
    if (!kept.ok()) return kept.status();
    common = static_cast<size_t>(*kept);
  }
  return engine_->feed(session_, history.subspan(common), wanted, logits,
                       [&](int, int) { return !proceed_ || proceed_(); });
}

Status ModelDrafter::begin(std::span<const int32_t> history) {
  if (int64_t(history.size()) >= engine_->context_tokens()) return {};
  std::vector<float> unused;
  return follow(history, Logits::kNone, unused);
}

Status ModelDrafter::draft(std::span<const int32_t> history, int most, Draft& draft) {
  draft.clear();
  if (int64_t(history.size()) >= engine_->context_tokens()) {
    reason_ = "draft_context";
    return {};
  }
  std::vector<float> logits;
  if (Status s = follow(history, Logits::kLast, logits); !s.ok()) return s;
  // The last draft is never fed; all that is must be forgotten again without loss when the first is wrong.
  most = std::min(most, 1 + engine_->revocable_tokens(session_, 0));
  while (true) {
    if (greedy_) {
      const auto token = sampler_->sample(logits);
      if (!token.ok()) return token.status();
      draft.tokens.push_back(*token);
    } else {
      auto from = sampler_->distribution(logits);
      if (!from.ok()) return from.status();
      draft.tokens.push_back(draw(*from, static_cast<double>(random_() >> 11) * 0x1p-53));
      draft.drawn_from.push_back(std::move(*from));
    }
    if (int(draft.tokens.size()) >= most) return {};
    const Feed feed{session_, std::span(draft.tokens).last(1), Logits::kLast};
    if (Status s = engine_->step({&feed, 1}, logits); !s.ok()) return s;
  }
}

}  // namespace varve::engine
