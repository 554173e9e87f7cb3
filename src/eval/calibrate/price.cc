#include "eval/calibrate/price.h"

#include <algorithm>

#include "engine/cache_plan.h"
#include "engine/capacity.h"

namespace varve::eval {

Result<size_t> Price::physical_bytes(const Profile& profile) const {
  const auto plan = engine::plan_cache(model_, profile);
  if (!plan.ok()) return plan.status();
  const engine::CapacityInput admitted = engine::capacity_terms(*plan, profile, 0, 0, length_tokens_);
  return std::max(plan->sequence_bytes(profile, length_tokens_) + scratch_bytes_,
                  static_cast<size_t>(admitted.fixed_bytes + admitted.kv_bytes));
}

Result<size_t> Price::page_bytes(const Profile& profile) const {
  const auto plan = engine::plan_cache(model_, profile);
  if (!plan.ok()) return plan.status();
  return plan->sequence_bytes(profile, length_tokens_);
}

size_t Price::dense_bytes() const {
  const auto dense = Profile::named("dense");
  const auto plan = engine::plan_cache(model_, *dense);
  return plan.ok() ? plan->dense_bytes(length_tokens_) : 0;
}

}  // namespace varve::eval
