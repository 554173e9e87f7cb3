#include "eval/run/team.h"

#include <cmath>

namespace varve::eval {

void Team::start_length(int context_tokens) {
  arms_.clear();
  arms_.resize(options_.arms.size());
  context_tokens_ = context_tokens;
}

Result<Arm*> Team::arm(size_t i) {
  if (!arms_[i]) {
    auto made = make_arm(model_, options_.arms[i],
                         {.context_tokens = context_tokens_,
                          .chunk_tokens = options_.step_tokens(),
                          .threads = options_.threads,
                          .kernel = options_.kernel,
                          .weight_gemm = options_.weight_products()});
    if (!made.ok()) return made.status();
    arms_[i] = std::move(*made);
  }
  return arms_[i].get();
}

Status Team::count(int64_t tokens) {
  done_ += tokens;
  if (progress_ && !progress_(what_, done_, total_)) return Status(StatusCode::kCancelled, "stopped");
  return {};
}

ItemRecord Team::new_record(size_t arm) const {
  const ArmSpec& spec = options_.arms[arm];
  ItemRecord r;
  r.arm = spec.name;
  // libllama compresses what it writes: there is no other mode for a peer.
  r.mode = mode_name(spec.kind == ArmKind::kPeer ? Mode::kB : options_.mode);
  r.profile_digest = spec.digest();
  r.model_digest = model_->info().digest;
  return r;
}

Fallbacks difference(const Fallbacks& after, const Fallbacks& before) {
  Fallbacks out;
  for (const auto& [reason, count] : after) {
    const auto was = before.find(reason);
    const uint64_t more = count - (was == before.end() ? 0 : was->second);
    if (more > 0) out[reason] = more;
  }
  return out;
}

Status check_finite(const std::vector<TokenDivergence>& divergences, const std::string& arm) {
  for (size_t i = 0; i < divergences.size(); ++i) {
    const TokenDivergence& t = divergences[i];
    if (!std::isfinite(t.kl) || !std::isfinite(t.nll_p) || !std::isfinite(t.nll_q)) {
      return internal_error("arm " + arm + " gave logits that are not numbers (row " + std::to_string(i) + ")");
    }
  }
  return {};
}

}  // namespace varve::eval
