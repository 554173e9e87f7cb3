#include "engine/fidelity.h"

#include "cache/store/file_store.h"
#include "cache/store/memory_store.h"

namespace varve::engine {

Result<std::unique_ptr<Fidelity>> Fidelity::create(cache::Cache& cache, const EngineOptions& options) {
  const Profile& profile = options.profile;
  auto out = std::make_unique<Fidelity>();
  // Without scores only late marks promote, too few to keep a copy of every page for.
  if (profile.scoring.on && profile.scoring.restore == "host") {
    out->store_ = std::make_unique<cache::MemoryStore>(options.refinement_bytes);
  } else if (profile.scoring.on && profile.scoring.restore == "disk") {
    auto file = cache::FileStore::create(options.refinement_dir, options.refinement_bytes);
    if (!file.ok()) return file.status();
    out->store_ = std::move(*file);
  }
  if (out->store_) out->kept_ = std::make_unique<cache::StoredRefinements>(out->store_.get());
  if (profile.scoring.restore != "none") {
    out->recompute_ =
        std::make_unique<Recompute>(cache, profile.page_tokens, profile.scoring.recompute_tokens_per_step);
  }
  return out;
}

Fidelity::~Fidelity() = default;

bool Fidelity::keep(size_t cls, cache::PageId page, cache::Tier tier, const uint8_t* slot, size_t bytes) {
  return kept_ && kept_->keep(cls, page, tier, slot, bytes);
}

cache::FidelitySource::State Fidelity::ask(cache::SequenceId session, size_t cls, cache::PageId page, int start) {
  if (kept_ && !recomputing_.contains(page)) {
    if (const State s = kept_->ask(session, cls, page, start); s != State::kNone) return s;
  }
  if (!recompute_) return State::kNone;
  switch (recompute_->ask(session, page, start)) {
    case Recompute::State::kReady: recomputing_.insert(page); return State::kReady;
    case Recompute::State::kPending: recomputing_.insert(page); return State::kPending;
    case Recompute::State::kNone: break;
  }
  recomputing_.erase(page);
  return State::kNone;
}

cache::FidelitySource::Bytes Fidelity::bytes(size_t cls, cache::PageId page) {
  if (recomputing_.contains(page)) return {recompute_->slot(cls, page), cache::Tier::kRecent, "recompute"};
  return kept_->bytes(cls, page);
}

void Fidelity::done(size_t cls, cache::PageId page) {
  if (recomputing_.erase(page) != 0) {
    recompute_->done(page);
  } else if (kept_) {
    kept_->done(cls, page);
  }
}

void Fidelity::relieve() {
  if (recompute_) recompute_->give_up();
}

void Fidelity::forget(cache::PageId page) {
  if (kept_) kept_->forget(page);
}

}  // namespace varve::engine
